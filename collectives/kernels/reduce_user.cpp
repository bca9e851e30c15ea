// Reductions by a function of the caller's: the canonical tree, block by block.
#include <algorithm>
#include <cstring>
#include <exception>

#include "collectives/kernels/reduce_kernels.hpp"
#include "comm/base/check.hpp"
#include "sprat/error.hpp"

namespace sprat::collectives {
namespace {

/// Bytes of a block: what one call of the function gets at most. Blocks lie on the stack, one for
/// each level of the tree, so that nothing is allocated.
constexpr std::size_t block_bytes = 4096;

void apply(const CheckedReduction& reduction, const std::byte* left, std::byte* right,
           std::size_t count) {
  const UserOp& op = *reduction.arithmetic.user;
  std::string reason;
  try {
    return op.function(left, right, count, reduction.arithmetic.input);
    // The function is the user's: what it throws becomes an error of the call that names it.
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
    reason = "an exception of unknown type";
  }
  throw Error(ErrorCode::aborted, text("user operation ", op.name, " threw: ", reason));
}

/// One walk over the tree of terms, for the elements [first, first + count) of each.
class UserWalk {
 public:
  UserWalk(const CheckedReduction& reduction, std::size_t first, std::size_t count)
      : reduction_(reduction), first_(first), count_(count) {}

  /// The node's elements, whose first term is the next one: that term's own memory, or `block`.
  const std::byte* evaluate(RankRange node, std::byte* block) {
    if (next_ == reduction_.terms.size()) {
      refuse_terms(node);
    }
    const Term& term = reduction_.terms[next_];
    const std::size_t size = size_of(reduction_.arithmetic.input);
    if (term.covers == node) {
      ++next_;
      return static_cast<const std::byte*>(term.data) + first_ * size;
    }
    if (node.size() < 2) {
      refuse_terms(node);
    }
    alignas(64) std::byte left_block[block_bytes];
    const int middle = split_point(node, term.covers);
    const std::byte* const left = evaluate({node.first, middle}, left_block);
    const std::byte* const right = evaluate({middle, node.last}, block);
    // The function writes over its right side, which must not be a term's own memory.
    if (right != block) {
      std::memcpy(block, right, count_ * size);
    }
    apply(reduction_, left, block, count_);
    return block;
  }

 private:
  const CheckedReduction& reduction_;
  std::size_t next_ = 0, first_, count_;
};

}  // namespace

void reduce_user(const CheckedReduction& reduction) {
  const std::size_t size = size_of(reduction.arithmetic.input);
  const std::size_t block_count = block_bytes / size;
  for (std::size_t i = 0; i < reduction.count; i += block_count) {
    const std::size_t count = std::min(block_count, reduction.count - i);
    alignas(64) std::byte block[block_bytes];
    const std::byte* const result = UserWalk(reduction, i, count).evaluate(reduction.covers, block);
    std::byte* const to = static_cast<std::byte*>(reduction.to) + i * size;
    if (result != to) {
      std::memcpy(to, result, count * size);
    }
  }
}

}  // namespace sprat::collectives
