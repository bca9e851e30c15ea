// How a job goes on without the dead: the survivors meet, and join a job of their own.
#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/context/context.hpp"

namespace sprat::comm {

std::shared_ptr<Context> Context::shrink(std::size_t world_bytes, int at_least,
                                         std::chrono::milliseconds patience) {
  need(survivor_listener_ != nullptr,
       "ranks that are threads of one process live and die together: their job ",
       "does not shrink");
  require(survivor_listener_->members() == numbers_,
          "this job has shrunk already; use the communicator that shrink() returned");
  require(at_least >= 1 && at_least <= size(), "at_least is ", at_least, "; it must be 1 to ",
          size());
  // What is still under way here never ends otherwise: not everybody may be left to do their part.
  fail(Error(ErrorCode::aborted, text(describe_peer(rank_), " shrinks the job"), rank_));
  const auto deadline = wait_policy_->now() + patience;
  for (;;) {
    for (int rank = 0; rank < size(); ++rank) {
      if (lost_[rank].load(std::memory_order_acquire)) {
        survivor_listener_->mourn(numbers_[rank]);
      }
    }
    SurvivorListener::Gathered gathered = survivor_listener_->gather(at_least, deadline);
    try {
      auto smaller = join(
          config_,
          {.rendezvous = std::move(gathered.rendezvous), .survivor_listener = survivor_listener_},
          world_bytes);
      survivor_listener_->commit(gathered.numbers);
      smaller->numbers_ = std::move(gathered.numbers);
      return smaller;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::lost_peer || wait_policy_->now() > deadline) {
        throw;
      }
      log().info("shrinking again: {}", error.what());
    }
  }
}

}  // namespace sprat::comm
