// What of a group could not be started: one communicator's calls fail alone, for other ranks wait
// for what the others are to do.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

namespace sprat::nccl {

class Comm;

class Refusals {
 public:
  /// A communicator that has refused one has no more of the group: it might be met by another one.
  bool has(const Comm* comm) const { return std::ranges::find(comms_, comm) != comms_.end(); }
  /// It has refused one, by the exception that is being handled.
  void add(const Comm* comm) {
    keep_failure();
    comms_.push_back(comm);
  }
  /// The exception that is being handled is of what has started.
  void keep_failure() { first_ = first_ ? first_ : std::current_exception(); }
  /// Throws what failed first, if anything did.
  void rethrow_first() const {
    if (first_) {
      std::rethrow_exception(first_);
    }
  }

 private:
  std::vector<const Comm*> comms_;
  std::exception_ptr first_;
};

}  // namespace sprat::nccl
