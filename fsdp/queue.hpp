// Where collectives of a sharded model wait their turn, and what is known of them once they have
// started.
#pragma once

#include <functional>
#include <memory>

#include "sprat/communicator.hpp"

namespace sprat::fsdp {

/// Something under way. Its buffers are its own until wait() returns or throws.
class Pending {
 public:
  class Operation {
   public:
    virtual ~Operation() = default;
    virtual void wait() = 0;
    virtual bool done() const = 0;
  };

  Pending() = default;  ///< Already ended.
  explicit Pending(std::unique_ptr<Operation> operation) : operation_(std::move(operation)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  /// Waits too, however it ends: the memory may go right after.
  ~Pending();

  /// Once more does nothing. Throws the operation's Error.
  void wait();
  bool done() const { return operation_ == nullptr || operation_->done(); }

 private:
  std::unique_ptr<Operation> operation_;
};

/// Carries out the collectives of one communicator in the order given.
class Queue {
 public:
  virtual ~Queue() = default;
  /// `start` is called once everything given before has been started.
  virtual Pending submit(std::function<Work()> start) = 0;
};

/// A kind of queue.
struct QueueKind {
  std::function<std::unique_ptr<Queue>()> make;
  bool poisons_slots = false;  ///< What is given back to an arena is filled with NaNs.
};
/// Starts at once: collectives are asynchronous already.
QueueKind inline_queue();

}  // namespace sprat::fsdp
