// What has operations in flight, and the list of all that does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "comm/transports/transport.hpp"

namespace sprat::comm {

/// What a communicator called at a sequence number, as far as it can tell.
struct Recall {
  /// Numbered as in ControlMessage::Kind::answer. Forgotten: long over.
  enum class State : std::uint8_t {
    called = 0,
    not_yet = 1,
    forgotten = 2,
    no_member = 3,
    freed = 4  ///< It has gone before that call.
  };
  State state = State::not_yet;
  Blob words = {};  ///< Of what was called: equal on all ranks that called the same.
};

/// Something that has operations in flight. Its calls are made with the token held.
class Driver {
 public:
  virtual ~Driver() = default;
  /// Moves its operations on by at most a slice of 50 to 100 µs; returns whether anything moved.
  /// Fails all of them once Context::failure() is set.
  virtual bool advance() noexcept = 0;
  /// Which communicator it is, and what it called at a sequence number.
  static constexpr std::uint64_t no_communicator = ~std::uint64_t{0};
  virtual std::uint64_t communicator() const noexcept = 0;
  virtual Recall called(std::uint64_t sequence) const = 0;
  /// Text of the oldest operation in flight; empty if there is none.
  virtual std::string under_way() const = 0;
};

/// The drivers of one rank, and what is remembered of those that have gone. All with the token
/// held.
class Drivers {
 public:
  void add(Driver* driver) { drivers_.push_back(driver); }
  void remove(Driver* driver) { std::erase(drivers_, driver); }
  /// A communicator goes that has called so many operations.
  void note_freed(std::uint64_t communicator, std::uint64_t calls);
  /// Each driver once; returns whether anything moved.
  bool advance() noexcept {
    bool moved = false;
    // By index: a driver that ends an operation may make callers add another.
    for (std::size_t i = 0; i < drivers_.size(); ++i) {
      moved |= drivers_[i]->advance();
    }
    return moved;
  }
  Recall recall(std::uint64_t communicator, std::uint64_t sequence) const;
  /// Text of the oldest operation in flight of the first driver that has one; empty: none has.
  std::string under_way() const;
  /// So many of a communicator's lowest bits are in the tags of its messages.
  static constexpr int communicator_bits = 15;
  /// A communicator has the same lowest bits as `number`: messages of the two would be mixed up.
  bool is_like_another(std::uint64_t number) const;

 private:
  struct Freed {
    std::uint64_t communicator, calls;
  };
  std::vector<Driver*> drivers_;
  std::deque<Freed> freed_;  ///< The last ones, oldest first.
};

}  // namespace sprat::comm
