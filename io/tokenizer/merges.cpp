#include "io/tokenizer/merges.hpp"

#include <functional>
#include <queue>
#include <tuple>

namespace sprat::io {
namespace {

constexpr int none = -1;

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

/// A token of a word that is being merged: a list, so that a merge moves nothing.
struct Symbol {
  std::int32_t token = 0;
  int before = none, after = none;
  bool gone = false;  ///< Merged into the one before it.
};

/// A pair that was seen, its left symbol at `position`. It may have changed since.
struct Candidate {
  std::uint32_t rank = 0;
  int position = 0;
  std::int32_t merged = 0;

  friend bool operator>(const Candidate& a, const Candidate& b) {
    return std::tie(a.rank, a.position) > std::tie(b.rank, b.position);
  }
};
using Queue = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;

}  // namespace

MergeTable::MergeTable(const TokenizerModel& model) : byte_tokens_(model.byte_tokens) {
  merges_.reserve(model.merges.size());
  std::uint32_t rank = 0;
  for (const TokenMerge& merge : model.merges) {
    // Of a pair that is given twice the later rank counts, as in Hugging Face's library.
    merges_[key_of(merge.left, merge.right)] = {rank++, merge.merged};
  }
}

const MergeTable::Found* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void MergeTable::append(std::string_view word, std::vector<std::int32_t>& tokens) const {
  std::vector<Symbol> symbols;
  for (const char byte : word) {
    const int at = static_cast<int>(symbols.size());
    symbols.push_back({.token = byte_tokens_[static_cast<unsigned char>(byte)],
                       .before = at - 1,
                       .after = at + 1});
  }
  if (symbols.empty()) {
    return;
  }
  symbols.back().after = none;
  Queue queue;
  const auto consider = [&](int left) {
    const int right = left == none ? none : symbols[left].after;
    if (right == none) {
      return;
    }
    if (const Found* found = find(symbols[left].token, symbols[right].token)) {
      queue.push({found->rank, left, found->merged});
    }
  };
  for (int at = 0; at < static_cast<int>(symbols.size()); ++at) {
    consider(at);
  }
  while (!queue.empty()) {
    const Candidate next = queue.top();
    queue.pop();
    Symbol& left = symbols[next.position];
    if (left.gone || left.after == none) {
      continue;
    }
    Symbol& right = symbols[left.after];
    const Found* found = find(left.token, right.token);
    if (found == nullptr || found->merged != next.merged) {
      continue;  // one of the two has become part of another token since
    }
    left.token = next.merged;
    left.after = right.after;
    right.gone = true;
    if (left.after != none) {
      symbols[left.after].before = next.position;
    }
    consider(left.before);
    consider(next.position);
  }
  for (int at = 0; at != none; at = symbols[at].after) {
    tokens.push_back(symbols[at].token);
  }
}

}  // namespace sprat::io
