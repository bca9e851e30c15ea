// What a reduction makes of the elements of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "sprat/buffer.hpp"
#include "sprat/export.hpp"

namespace sprat {

/// band, bor, bxor work on bits; land and lor on truth, and give 0 or 1. Of booleans sum and max
/// are lor, prod and min are land. The last two come from Reduction's functions.
enum class ReduceOp : std::uint8_t {
  sum,
  prod,
  min,
  max,
  avg,
  band,
  bor,
  bxor,
  land,
  lor,
  premultiplied_sum,
  user,
};
/// "sum" and so on.
SPRAT_API const char* name(ReduceOp op) noexcept;
/// Every operation that needs no more than its name: all but the last two.
SPRAT_API std::span<const ReduceOp> all_reduce_ops() noexcept;
/// Whether the operation is defined on elements of this type: bits and truth on integers and
/// booleans only, avg on numbers only, premultiplied_sum on floats only.
SPRAT_API bool takes(ReduceOp op, DType dtype) noexcept;

/// The order in which reductions combine their ranks' contributions.
enum class ReduceOrder : std::uint8_t {
  canonical,  ///< One tree over the ranks, whatever their placement and the algorithm.
  any,        ///< Each contribution once, in an order that suits placement and size.
};
/// "canonical" or "any".
SPRAT_API const char* name(ReduceOrder order) noexcept;

/// An operation of the caller's own. It must be associative; it need not be commutative.
struct UserOp {
  /// right[i] <- left[i] op right[i], for i < count; `left` comes from lower ranks than `right`.
  /// Runs on whichever thread drives the communicator, of several communicators at the same time,
  /// and must not call Sprat. What it throws fails the operation on every rank.
  using Function =
      std::function<void(const void* left, void* right, std::size_t count, DType dtype)>;
  std::string name;  ///< All ranks must agree on it.
  Function function;
};

/// A ReduceOp, or one with more to it. All ranks must agree on all of it.
class SPRAT_API Reduction {
 public:
  Reduction(ReduceOp op = ReduceOp::sum) noexcept : op_(op) {}  // NOLINT: an op is a reduction
  /// Multiplies each rank's contribution by `factor`, rounded to the type that sums are held in,
  /// and adds up. Throws Error{invalid_argument} unless the factor is finite.
  static Reduction premultiplied_sum(double factor);
  /// Throws Error{invalid_argument} if there is no name or no function.
  static Reduction user(UserOp op);

  ReduceOp op() const noexcept { return op_; }
  /// 1 but for premultiplied sums.
  double factor() const noexcept { return factor_; }
  /// Null but for user operations.
  const UserOp* user_op() const noexcept { return user_.get(); }

 private:
  ReduceOp op_;
  double factor_ = 1;
  std::shared_ptr<const UserOp> user_;  ///< Shared with the operations that use it.
};

/// "sum", "premultiplied_sum by 0.5", "user operation norms": equal only for equal reductions.
SPRAT_API std::string describe(const Reduction& reduction);

}  // namespace sprat
