// How operations come to an executor, and how a caller waits for all of them.
#include "collectives/engine/executor.hpp"

namespace sprat::collectives {
namespace {

// A call of at most so many bytes takes some tens of microseconds once all have made it.
constexpr std::size_t most_stayed_for = 1 << 20;

}  // namespace

Recorder::Call Executor::call_of(const Operation& operation) {
  return {operation.sequence, operation.signature, operation.problem.payload_bytes(),
          operation.problem.root, operation.posted};
}

void Executor::follow(std::shared_ptr<const Rules> rules) {
  drain();
  const auto token = context_->take_token();
  plans_ = PlanCache(std::move(rules));
  known_ = {};
}

void Executor::post(const std::shared_ptr<Operation>& operation, bool blocking) {
  const auto token = context_->take_token();
  const bool alone = context_->idle();
  operation->sequence = history_.next();
  operation->prior_calls_hash = prior_calls_hash_;
  std::shared_ptr<const Problem> problem;
  if (!is_plain(operation->problem)) {
    problem = std::shared_ptr<const Problem>(operation, &operation->problem);
  }
  history_.add(operation->signature, prior_calls_hash_, std::move(problem),
               queue_.empty() ? operation->sequence : queue_.front()->sequence);
  prior_calls_hash_ =
      completes_locally(operation->problem) ? digest(operation->signature, prior_calls_hash_) : 0;
  enqueue(operation);
  if (queue_.size() == 1) {
    advance();
    if (blocking && alone) {
      poll_alone(*operation);
    }
  } else {
    recorder_.queued(call_of(*operation));
  }
}

void Executor::enqueue(const std::shared_ptr<Operation>& operation) {
  operation->posted = context_->wait_policy().now();
  operation->deadline = operation->posted + operation->timeout;
  recorder_.called(operation->sequence);
  queue_.push_back(operation);
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  context_->begin_operation();
}

void Executor::drain() {
  while (in_flight_.load(std::memory_order_acquire) > 0) {
    std::shared_ptr<Operation> last;
    {
      const auto token = context_->take_token();
      last = queue_.empty() ? nullptr : queue_.back();
    }
    if (last) {
      try {
        last->wait();
      } catch (const Error&) {
        // Whoever holds the Work hears of it.
      }
    }
  }
}

// While nothing else needs driving, and for as long as others may wait for the token.
void Executor::poll_alone(const Operation& operation) {
  const Problem& problem = operation.problem;
  if (grouping_->hosts() > 1 || exchanges(problem.collective) ||
      problem.payload_bytes() > most_stayed_for) {
    return;
  }
  comm::WaitPolicy& wait_policy = context_->wait_policy();
  comm::Clock::time_point idle_since{};
  int round = 0;
  while (!operation.done() && !context_->token_wanted()) {
    if (advance()) {
      round = 0;  // in the midst of something: to give the core away now would only delay it
      continue;
    }
    if (idle_since == comm::Clock::time_point{}) {
      idle_since = wait_policy.now();
    }
    if (!wait_policy.rest(round++, context_->oversubscribed())) {
      break;
    }
  }
  if (idle_since != comm::Clock::time_point{}) {
    context_->add_waited(wait_policy.now() - idle_since);
  }
}

}  // namespace sprat::collectives
