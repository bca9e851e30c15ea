// Tables that belong to an epoch: made by who asks first, kept for the two latest epochs.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace sprat::io {

/// Readers stand at an epoch's end and, ahead, in the next one: two tables serve them. Any thread
/// may ask, several at once: who asks for a table that another one makes waits for it, and whoever
/// asks for the other epoch's does not.
template <class Table>
class EpochCache {
 public:
  /// `make` is pure.
  explicit EpochCache(std::function<Table(std::uint64_t epoch)> make) : make_(std::move(make)) {}

  std::shared_ptr<const Table> of(std::uint64_t epoch) const {
    std::optional<std::promise<Shared>> promise;
    const std::optional<Future> found = find_or_promise(epoch, promise);
    if (found) {
      return found->get();
    }
    try {
      auto table = std::make_shared<const Table>(make_(epoch));
      promise->set_value(table);
      return table;
    } catch (...) {
      // Who waits hears of it; who asks later tries again, as memory may be there by then.
      promise->set_exception(std::current_exception());
      forget(epoch);
      throw;
    }
  }

 private:
  // Shared, because a table leaves the cache while others still read it.
  using Shared = std::shared_ptr<const Table>;
  using Future = std::shared_future<Shared>;
  struct Entry {
    std::uint64_t epoch = 0;
    std::optional<Future> table;
  };

  /// Nothing if the caller is to fulfil `promise`, which is there then alone: it allocates.
  std::optional<Future> find_or_promise(std::uint64_t epoch,
                                        std::optional<std::promise<Shared>>& promise) const {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].table && entries_[i].epoch == epoch) {
        oldest_ = 1 - i;
        return entries_[i].table;
      }
    }
    entries_[oldest_] = {epoch, promise.emplace().get_future().share()};
    oldest_ = 1 - oldest_;
    return std::nullopt;
  }

  void forget(std::uint64_t epoch) const {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      if (entry.epoch == epoch) {
        entry.table.reset();
      }
    }
  }

  std::function<Table(std::uint64_t)> make_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::array<Entry, 2> entries_;
  mutable std::size_t oldest_ = 0;
};

}  // namespace sprat::io
