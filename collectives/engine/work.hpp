// The state behind a Work: an operation that ends once, well or not.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "comm/context/context.hpp"
#include "sprat/communicator.hpp"

namespace sprat {

class Work::State {
 public:
  /// Shared with the context: an operation may be asked after its communicator is gone.
  explicit State(std::shared_ptr<comm::Context> context) : context_(std::move(context)) {}
  virtual ~State() = default;
  /// Of a receive that is done: the rank it came from; otherwise -1.
  virtual int source() const { return -1; }

  /// False in a child of fork(): the operation is its parent's, and stays what it was.
  bool here() const { return context_->here(); }
  /// Throws Error{unavailable} there.
  void require_here() const { context_->require_here(); }
  /// Any thread; throws the operation's Error once no peer of this process can touch its memory.
  void wait();
  /// Moves the operation on a little. Any thread.
  void drive();
  /// Drives whatever this rank has in flight until `done` is true. Any thread.
  void drive_until(const std::function<bool()>& done);

  bool done() const { return done_.load(std::memory_order_acquire); }
  /// Calls `notice` once when done, on whichever thread notices, without the token. Once.
  void on_done(std::function<void()> notice);
  /// Asks for a progress thread's help unless done. Once, after posting.
  void leave_unattended();

 protected:
  /// Ends the operation. Token held; once.
  void finish();
  /// `scope`: of the communicator that has failed, if it was not this operation alone.
  void fail(const Error& error, std::shared_ptr<const comm::FailureScope> scope = nullptr);

 private:
  void end();
  void rethrow();

  std::shared_ptr<comm::Context> context_;
  std::atomic<bool> done_ = false;        ///< Release: error_ is complete.
  std::atomic<bool> unattended_ = false;  ///< Counted in the context; whoever clears it uncounts.
  std::function<void()> notice_;
  std::atomic<bool> to_notice_ = false;  ///< notice_ is complete; whoever clears this calls it.
  std::optional<Error> error_;
  std::shared_ptr<const comm::FailureScope>
      failed_with_;  ///< Outlasts its communicator. Null: none.
};

}  // namespace sprat
