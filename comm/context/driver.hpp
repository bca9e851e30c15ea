// What has operations in flight, and the list of all that does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/coordinator/message_question.hpp"
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

/// A slice of copying or reducing. It touches the memory of one operation and nothing else of its
/// driver, so any thread may run it, without the token.
class BulkTask {
 public:
  virtual ~BulkTask() = default;
  virtual void run() noexcept = 0;
};

/// What came of a call of Driver::advance().
struct Advance {
  bool moved = false;
  /// Not null: the driver goes on once this has run, as soon as it is called again. It is called
  /// not at all while it runs.
  BulkTask* left = nullptr;
};

/// Something that has operations in flight. Its calls are made with the token held.
class Driver {
 public:
  virtual ~Driver() = default;
  /// Moves its operations on for at most 50 to 100 µs. Fails all of them once Context::failure() is
  /// set.
  virtual Advance advance() noexcept = 0;
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
  /// A driver, and whether its task runs.
  struct Entry {
    Driver* driver = nullptr;
    bool busy = false;   ///< Guarded by the token.
    std::mutex running;  ///< Held while the task runs, so that others can wait for its end.
  };
  /// What one round came to.
  struct Round {
    bool moved = false;
    /// Shared: who waits for the task's end may outlast the driver's registration. Null: no task.
    std::shared_ptr<Entry> entry = nullptr;
    BulkTask* task = nullptr;
  };

  void add(Driver* driver);
  /// Of one that is not busy.
  void remove(Driver* driver);
  /// The entry of one that is not removed.
  std::shared_ptr<Entry> find(const Driver* driver) const;
  /// A communicator's, if it is busy; else null.
  std::shared_ptr<Entry> find_busy(std::uint64_t communicator) const;
  /// A communicator goes that has called so many operations.
  void note_freed(std::uint64_t communicator, std::uint64_t calls);
  /// What a communicator that goes has exchanged with one rank in messages.
  struct Exchanged {
    int rank = 0;
    std::uint32_t sent = 0, received = 0;  ///< Begun to send, and received.
  };
  /// Its messages have gone, before it. Ranks that are missing exchanged none.
  void note_messages(std::uint64_t communicator, std::vector<Exchanged> exchanged);
  /// Each driver that is not busy once. Of those that leave a task, they come up in turn.
  Round advance() noexcept;
  /// The sequence of a collective, or a MessageQuestion, of which this rank is the peer.
  Recall recall(std::uint64_t communicator, std::uint64_t sequence) const;
  /// Text of the oldest operation in flight of the first driver that has one; empty: none has.
  std::string under_way() const;
  /// So many of a communicator's lowest bits are in the tags of its messages.
  static constexpr int communicator_bits = comm::communicator_bits;
  /// A communicator has the same lowest bits as `number`: messages of the two would be mixed up.
  bool is_like_another(std::uint64_t number) const;

 private:
  struct Freed {
    std::uint64_t communicator, calls;
  };
  struct FreedMessages {
    std::uint64_t communicator;
    std::vector<Exchanged> exchanged;
  };
  Recall recall_messages(std::uint64_t communicator, const MessageQuestion& question) const;

  std::vector<std::shared_ptr<Entry>> drivers_;
  std::size_t next_ = 0;     ///< From here on the first task is taken.
  std::deque<Freed> freed_;  ///< The last ones, oldest first.
  std::deque<FreedMessages> freed_messages_;
};

}  // namespace sprat::comm
