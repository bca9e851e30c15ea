// What each rank handed to an operation that ranks disagree on: its tensors' shapes.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "plugins/torch/native/store.hpp"

namespace sprat::pytorch {

/// Where the ranks of a group tell each other, once something has gone wrong. Any thread.
class Notes final {
 public:
  Notes(c10::intrusive_ptr<c10d::Store> store, std::string of_group, int of_rank, int of_size)
      : group(std::move(of_group)), rank(of_rank), size(of_size), store_(std::move(store)) {}

  const std::string group;
  const int rank, size;
  /// Null once the group has ended.
  c10::intrusive_ptr<c10d::Store> store() const {
    const std::lock_guard lock(mutex_);
    return store_;
  }
  /// Works that outlive the group keep these notes, and must not keep the store: its port would
  /// stay open and its threads go on, which a child of fork() has not.
  void forget_store() {
    c10::intrusive_ptr<c10d::Store> gone;  // closed without the lock
    const std::lock_guard lock(mutex_);
    gone.swap(store_);
  }

 private:
  mutable std::mutex mutex_;  ///< Guards store_.
  c10::intrusive_ptr<c10d::Store> store_;
};

/// Leaves `mine` in the store and waits a moment for the others': "\nrank 0: all_reduce of [4, 3]
/// float32\nrank 1: ...". Empty if the store is gone.
std::string compare_notes(const Notes& notes, const std::string& mine);

}  // namespace sprat::pytorch
