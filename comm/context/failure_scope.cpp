// How far a failure reaches on one rank: to one communicator, or to all of a domain.
#include "comm/context/failure_scope.hpp"

#include <algorithm>
#include <utility>

namespace sprat::comm {
namespace {

// Word of a failure may come before the communicator that it is about: its other ranks were faster.
// That is a matter of milliseconds, and of those that were made last.
constexpr std::size_t most_failed_domains = 1024;

}  // namespace

bool FailureScope::has(int world_rank) const noexcept {
  return std::ranges::count(about_.world_ranks, world_rank) > 0;
}

// A waiter that sees first_ throws, and its caller may write to its buffers: by then peers must be
// able to see that what they read there is not good any more. So the shown word comes first. It is
// never taken back.
bool FailureScope::set(const Error& error, WaitPolicy& wait_policy) noexcept {
  if (first() != nullptr) {
    return false;
  }
  if (shown_ != nullptr) {
    shown_->store(1, std::memory_order_seq_cst);
  }
  wait_policy.point();
  first_.store(new Error(error), std::memory_order_release);
  return true;
}

// Through the wait policy: in a simulation another thread of the rank may come here at the point
// between the two stores of set().
std::unique_lock<std::mutex> FailureScopes::locked() {
  wait_policy_.lock(mutex_);
  return std::unique_lock(mutex_, std::adopt_lock);
}

std::shared_ptr<const FailureScope> FailureScopes::open(FailureScope::About about) {
  auto scope = std::make_shared<FailureScope>(std::move(about));
  const auto lock = locked();
  scopes_.push_back(scope);
  if (const Error* cause = job_ ? &*job_ : cause_of(scope->domain())) {
    scope->set(*cause, wait_policy_);
    spent_.insert(scope->communicator());
    job_follows_ |= scope->with_job();
  }
  return scope;
}

void FailureScopes::close(const FailureScope& scope) noexcept {
  const auto lock = locked();
  const auto found = std::ranges::find(scopes_, &scope, &std::shared_ptr<FailureScope>::get);
  if (found != scopes_.end()) {
    (*found)->shown_ = nullptr;
    some_ended_well_ |= scope.first() == nullptr;
    scopes_.erase(found);
  }
}

bool FailureScopes::fail_all(const Error& error) {
  const auto lock = locked();
  if (job_) {
    return false;
  }
  for (const auto& scope : scopes_) {
    scope->set(error, wait_policy_);
  }
  job_ = error;
  return true;
}

bool FailureScopes::fail(std::uint64_t domain, const Error& error) {
  const auto lock = locked();
  return fail_locked(domain, error);
}

bool FailureScopes::fail_locked(std::uint64_t domain, const Error& error) {
  if (cause_of(domain) == nullptr) {
    if (failed_.size() == most_failed_domains) {
      failed_.pop_front();
    }
    failed_.push_back({domain, error});
  }
  bool any = false;
  for (const auto& scope : scopes_) {
    if (scope->domain() == domain && scope->set(error, wait_policy_)) {
      spent_.insert(scope->communicator());
      job_follows_ |= scope->with_job();
      any = true;
    }
  }
  return any;
}

std::vector<std::uint64_t> FailureScopes::fail_those_with(int world_rank, const Error& error) {
  const auto lock = locked();
  std::vector<std::uint64_t> failed;
  for (const auto& scope : scopes_) {
    if (scope->has(world_rank) && fail_locked(scope->domain(), error)) {
      failed.push_back(scope->domain());
    }
  }
  return failed;
}

std::uint64_t FailureScopes::domain_of(std::uint64_t communicator) {
  const auto lock = locked();
  const auto found = std::ranges::find(scopes_, communicator, &FailureScope::communicator);
  return found == scopes_.end() ? communicator : (*found)->domain();
}

bool FailureScopes::has_failed(std::uint64_t communicator) {
  const auto lock = locked();
  const auto found = std::ranges::find(scopes_, communicator, &FailureScope::communicator);
  return job_.has_value() || cause_of(communicator) != nullptr ||
         (found != scopes_.end() && (*found)->first() != nullptr);
}

bool FailureScopes::is_spent(std::uint64_t number, int bits) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  const auto lock = locked();
  return std::ranges::any_of(
      spent_, [&](std::uint64_t communicator) { return ((communicator ^ number) & mask) == 0; });
}

bool FailureScopes::job_follows() {
  const auto lock = locked();
  return job_follows_;
}

bool FailureScopes::some_ended_well() {
  const auto lock = locked();
  return some_ended_well_;
}

std::size_t FailureScopes::spent() {
  const auto lock = locked();
  return spent_.size();
}

const Error* FailureScopes::cause_of(std::uint64_t domain) const {
  const auto found = std::ranges::find(failed_, domain, &Domain::number);
  return found == failed_.end() ? nullptr : &found->error;
}

}  // namespace sprat::comm
