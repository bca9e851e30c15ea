// Which thread of a rank sleeps on its wire's descriptors.
//
// One watches the wire for all of the rank: it drives what comes, and rings for whom that ends, so
// the others sleep on the bell alone. When it watches no more it says so here, and then rings; the
// others listen, and then look here. So they see that nobody does, or are rung.
#pragma once

#include <atomic>

#include "comm/context/bells.hpp"
#include "comm/transports/transport.hpp"

namespace sprat::comm {

/// One rank's.
class WireWatch {
 public:
  explicit WireWatch(Bells& bells) : bells_(bells) {}
  /// Null: there is no wire. Once, before any thread sleeps.
  void open(MessageTransport* wire);

  /// Any thread, like the two after it.
  bool possible() const { return news_ != nullptr && bells_.can_poll(); }
  bool taken() const { return taken_.load(std::memory_order_acquire); }
  /// Of the thread that watches.
  void end() { taken_.store(false, std::memory_order_release); }

  /// The caller watches from now on, and may poll once it has driven in vain: what asking the wire
  /// makes it take in is not shown by its descriptors any more. False if another thread watches, or
  /// there is something to do. If possible(); token held.
  bool begin();

 private:
  Bells& bells_;
  NewsDescriptors* news_ = nullptr;  ///< The wire's; null: it has none.
  std::atomic<bool> taken_ = false;  ///< A thread watches. Released when it does not poll any more.
};

}  // namespace sprat::comm
