// Contributions of micro-batches to one sum, added in canonical order whichever comes first.
//
// A binary counter: what is whole waits until its neighbour in the tree is whole too. So n
// contributions that come in order never need more than floor(lg n) + 1 buffers at a time.
#pragma once

#include <map>
#include <vector>

namespace sprat::fsdp {

/// Says which buffer each contribution is made in and when two are added. Pure: it only counts.
/// Buffers are numbered from 0; a number is used again once what was there has been added.
class MicrobatchTree {
 public:
  /// buffer `into` += buffer `from`, which is free from then on.
  struct Addition {
    int into = 0, from = 0;
    friend bool operator==(const Addition&, const Addition&) = default;
  };

  /// Of contributions 0 to contributions - 1, at least 1.
  explicit MicrobatchTree(int contributions);
  /// The buffer of a contribution that is being made: the first that is free, if it is new.
  int buffer(int contribution);
  /// The contribution is whole. Returns what can be added now, in turn. Once all are whole their
  /// sum is in buffer 0. Throws Error{internal} if it is not being made.
  std::vector<Addition> finish(int contribution);
  bool is_finished(int contribution) const;
  /// Buffers that hold something, by number.
  const std::vector<bool>& in_use() const { return in_use_; }

 private:
  /// Contributions [first, last) that were added up, by `first`.
  struct Sum {
    int last = 0, buffer = 0;
  };

  int contributions_;
  std::map<int, int> open_;  // the buffer of each contribution that is being made
  std::map<int, Sum> sums_;  // by their first contribution; neighbours in the tree are never both
  std::vector<bool> in_use_;
};

}  // namespace sprat::fsdp
