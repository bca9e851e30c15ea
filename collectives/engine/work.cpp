#include "collectives/engine/work.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat {

[[gnu::hot]] void Work::wait() {
  if (more_.empty()) {
    return state_ ? state_->wait() : void();
  }
  std::optional<Error> first;
  for (State* state : states()) {
    try {
      state->wait();
    } catch (const Error& error) {
      first = first ? first : error;
    }
  }
  if (first) {
    throw *first;
  }
}

bool Work::test() {
  require_here();
  if (!done()) {
    for (State* state : states()) {
      state->drive();
    }
  }
  if (!done()) {
    return false;
  }
  wait();
  return true;
}

bool Work::done() const noexcept {
  const auto is_over = [](const State& state) { return state.done() || !state.here(); };
  return (!state_ || is_over(*state_)) &&
         std::ranges::all_of(more_, [&](const auto& state) { return is_over(*state); });
}

void Work::require_here() const {
  if (state_) {
    state_->require_here();
  }
  for (const auto& state : more_) {
    state->require_here();
  }
}

std::vector<Work::State*> Work::states() const {
  std::vector<State*> all;
  if (state_) {
    all.push_back(state_.get());
  }
  for (const auto& state : more_) {
    all.push_back(state.get());
  }
  return all;
}

int Work::source() const noexcept { return state_ && state_->done() ? state_->source() : -1; }

void Work::on_done(std::function<void()> notice) {
  require_here();
  const std::vector<State*> all = states();
  if (all.empty()) {
    notice();
  } else if (all.size() == 1) {
    all.front()->on_done(std::move(notice));
  } else {
    // Shared by the states, of which the last one that ends calls.
    auto left = std::make_shared<std::atomic<std::size_t>>(all.size());
    auto last = std::make_shared<const std::function<void()>>(std::move(notice));
    for (State* state : all) {
      state->on_done([left, last] {
        if (left->fetch_sub(1) == 1) {
          (*last)();
        }
      });
    }
  }
}

Work all_of(std::vector<Work> works) {
  Work all;
  for (Work& work : works) {
    if (!all.state_) {
      all.state_ = std::move(work.state_);
    } else if (work.state_) {
      all.more_.push_back(std::move(work.state_));
    }
    std::ranges::move(work.more_, std::back_inserter(all.more_));
  }
  return all;
}

std::size_t wait_any(std::span<Work> works) {
  require(!works.empty(), "wait_any() of no works");
  for (const Work& work : works) {
    work.require_here();
  }
  std::size_t index = works.size();
  const auto find_done = [&] {
    const auto found = std::ranges::find_if(works, &Work::done);
    index = static_cast<std::size_t>(found - works.begin());
    return found != works.end();
  };
  if (!find_done()) {
    works.front().states().front()->drive_until(find_done);
  }
  return index;
}

[[gnu::hot]] void Work::State::wait() {
  require_here();
  if (!done()) {
    context_->drive_until([this] { return done(); });
  }
  rethrow();
}

void Work::State::drive() {
  if (!done()) {
    context_->drive_once();
  }
}

void Work::State::drive_until(const std::function<bool()>& done) { context_->drive_until(done); }

[[gnu::hot]] void Work::State::rethrow() {
  if (error_) {
    if (failed_with_) {
      context_->quiesce(*failed_with_);
    }
    context_->await_record();
    throw *error_;
  }
}

void Work::State::leave_unattended() {
  if (done()) {
    return;
  }
  unattended_.store(true);
  context_->count_unattended(+1);
  // The operation may have ended before it could see the flag.
  if (done() && unattended_.exchange(false)) {
    context_->count_unattended(-1);
  }
}

void Work::State::on_done(std::function<void()> notice) {
  notice_ = std::move(notice);
  to_notice_.store(true);
  // The operation may have ended before it could see the flag.
  if (done() && to_notice_.exchange(false)) {
    std::exchange(notice_, nullptr)();  // it may hold this
  }
}

[[gnu::hot]] void Work::State::finish() { end(); }

void Work::State::fail(const Error& error, std::shared_ptr<const comm::FailureScope> scope) {
  error_.emplace(error);
  failed_with_ = std::move(scope);
  end();
}

[[gnu::hot]] void Work::State::end() {
  done_.store(true);  // sequentially consistent with leave_unattended() and on_done()
  if (unattended_.exchange(false)) {
    context_->count_unattended(-1);
  }
  if (to_notice_.load() && to_notice_.exchange(false)) {
    context_->after_token(std::move(notice_));
  }
  context_->ring_self();
}

}  // namespace sprat
