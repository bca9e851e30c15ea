// The phases of an operation: announce, agree on windows, run each window's plan, leave.
#include "collectives/engine/executor.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/engine/copy.hpp"
#include "comm/base/check.hpp"
#include "comm/base/log.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;

// Bytes read and written between two looks at the rest of the world: some 50 to 100 µs of work. A
// piece of a step is about as long, so that slices end soon after. Half of it took up to a fifth
// longer where four ranks reduce 16 MiB on two cores.
constexpr std::size_t most_traffic = 1 << 20;
// A failed peer tells why within this time.
constexpr auto failure_grace = 1s;

}  // namespace

Executor::Executor(std::shared_ptr<comm::Context> context, Membership membership,
                   std::shared_ptr<const Grouping> grouping, std::shared_ptr<const Rules> rules)
    : context_(std::move(context)),
      membership_(std::move(membership)),
      grouping_(std::move(grouping)),
      plans_(std::move(rules)),
      peers_(membership_.world_ranks.size()),
      recorder_(context_, membership_.id, membership_.name, membership_.rank,
                membership_.world_ranks),
      stragglers_(context_->config().straggler_after) {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (!grouping_->together(rank, membership_.rank)) {
      continue;
    }
    const int world = membership_.world_ranks[rank];
    peers_[rank].control_block = reinterpret_cast<ControlBlock*>(
        context_->peer_control(world, membership_.control_blocks[rank]));
    if (rank != membership_.rank) {
      local_peers_.push_back(rank);
      local_world_ranks_.push_back(world);
    }
  }
  control_block_ = peers_[membership_.rank].control_block;
  control_block_->owner.store(membership_.id + 1, std::memory_order_release);
  const auto token = context_->take_token();
  context_->add(this);
}

Executor::~Executor() {
  if (!context_->here()) {
    return;
  }
  drain();
  context_->note_freed(membership_.id, history_.next());
  context_->remove(this);
  // Peers may still read what this rank inlined in its last operations. A control block that they
  // are not done with after a moment is never used again.
  comm::WaitPolicy& wait_policy = context_->wait_policy();
  const auto patience = wait_policy.now() + 20ms;
  bool done = false;
  while (!done && wait_policy.now() < patience && context_->failure() == nullptr) {
    done = std::all_of(local_peers_.begin(), local_peers_.end(), [&](int peer) {
      const ControlBlock& theirs = *peers_[peer].control_block;
      return theirs.owner.load(std::memory_order_acquire) != membership_.id + 1 ||
             theirs.completed.load(std::memory_order_acquire) >= history_.next();
    });
    context_->drive_once();
    wait_policy.yield();
  }
  if (done) {
    const auto token = context_->take_token();
    context_->free_control(membership_.control_blocks[membership_.rank], sizeof(ControlBlock));
  }
}

std::string Executor::under_way() const { return queue_.empty() ? "" : describe_active(); }

std::string Executor::describe_active() const {
  const Operation& operation = *queue_.front();
  return text(describe(operation.problem), " (operation ", operation.sequence, " of ",
              membership_.name, ")");
}

bool Executor::advance() noexcept {
  if (queue_.empty()) {
    return false;
  }
  try {
    if (const Error* failure = context_->failure()) {
      fail_all(*failure);
      return true;
    }
    bool moved = false;
    slice_traffic_ = 0;
    while (!queue_.empty() && !slice_is_over() && advance_active()) {
      moved = true;
    }
    if (moved) {
      idle_calls_ = 0;
      stuck_since_ = unmapped_ = {};
    } else if (++idle_calls_ % 64 == 0) {
      watch_clock();
    }
    return moved;
  } catch (const Unmapped& peer) {
    wait_for_news(peer);
    return false;
  } catch (const Error& error) {
    context_->fail(Error(error.code(), text(describe_active(), ": ", error.what()), error.rank()));
  } catch (const std::exception& error) {
    context_->fail(Error(ErrorCode::internal, text(describe_active(), ": ", error.what())));
  }
  return true;
}

// One move; false if nothing can be done now.
bool Executor::advance_active() {
  switch (phase_) {
    case Phase::idle:
      begin_active();
      announce();
      phase_ = eager_ ? Phase::meeting : Phase::gathering;
      return true;
    case Phase::meeting:
      return meet();
    case Phase::gathering:
      return choose_windows();
    case Phase::running:
      return run_steps();
    case Phase::leaving:
      return leave();
  }
  return false;
}

void Executor::begin_active() {
  active_ = queue_.front().get();
  slot_ = &control_block_->of(active_->sequence);
  for (PeerState& peer : peers_) {
    peer.announced = false;
  }
  const Planned& planned = plans_.of(active_->problem);
  algorithm_ = planned.algorithm;
  plan_ = planned.plan;
  eager_ = planned.eager;
  out_of_place_ = planned.out_of_place;
  streams_ = goes_past_cache(active_->problem, context_->oversubscribed());
  recorder_.running(call_of(*active_), algorithm_->name);
  windows_ = {.count = active_->problem.count, .number = 1};
  window_ = {};
}

// Publishes what this rank calls and where its buffers lie.
void Executor::announce() {
  if (eager_) {
    remember(*active_);
    show_eager(*eager_, active_->input, *slot_);
    inlined_ = true;
  } else {
    show_buffers(*slot_);
  }
  slot_->signature = active_->signature;
  slot_->signals.store(0, std::memory_order_relaxed);
  slot_->left.store(0, std::memory_order_relaxed);
  slot_->announced.store(active_->sequence + 1, std::memory_order_release);
  context_->ring(local_world_ranks_);
}

// Another plan may be better if no rank's output lies over its input, as their announcements tell.
bool Executor::choose_plan() {
  bool out_of_place = active_->input != active_->output;
  for (const int peer : local_peers_) {
    if (!announced(peer)) {
      return false;
    }
    out_of_place &= peers_[peer].control_block->of(active_->sequence).in_place == 0;
  }
  if (out_of_place) {
    algorithm_ = out_of_place_->algorithm;
    plan_ = out_of_place_->plan;
    recorder_.running(call_of(*active_), algorithm_->name);
  }
  out_of_place_ = nullptr;
  return true;
}

// All ranks cut alike: on several hosts by what all know of the job, on one by where every
// announced buffer lies.
bool Executor::choose_windows() {
  if (out_of_place_ && !choose_plan()) {
    return false;
  }
  const Problem& problem = active_->problem;
  const std::size_t staging_bytes = context_->config().staging_bytes;
  Access access = Access::direct;
  if (grouping_->hosts() > 1) {
    access = access_between_hosts(problem, plan_->traits, context_->everybody_readable());
  } else if (asks_announcements(problem, staging_bytes)) {
    for (const int peer : local_peers_) {
      if (!announced(peer)) {
        return false;
      }
    }
    access = somebody_stages() ? Access::staged : Access::direct;
  }
  windows_ = cut(problem, access, staging_bytes);
  begin_window(0);
  phase_ = Phase::running;
  return true;
}

void Executor::begin_window(std::size_t index) {
  const Problem& problem = active_->problem;
  window_ = window_of(problem, windows_, index);
  if (windows_.number > 1 && problem.counts) {
    Problem part = problem;
    part.count = window_.count;
    part.counts = window_.counts;
    plan_ = std::make_shared<const Plan>(make_plan(part, *algorithm_));
  } else if (windows_.number > 1) {
    plan_ = plans_.of(problem, *algorithm_, window_.count).plan;
  }
  signals_ = 0;
  first_open_ = 0;
  partial_done_ = 0;
  states_.assign(plan_->steps.size(), StepState::pending);
  if (requests_.size() < plan_->steps.size()) {
    requests_.resize(plan_->steps.size());
  }
  for (PeerState& peer : peers_) {
    for (View& view : peer.views) {
      view = {};
    }
  }
  prepare_memory();
  if (index > 0) {
    slot_->signals.store(Slot::progress(index, 0), std::memory_order_release);
  }
}

/// Others may want the token: enough has been read and written since advance() was called.
bool Executor::slice_is_over() const { return slice_traffic_ >= most_traffic; }

bool Executor::run_steps() {
  // Staging and scratch alternate: the window before the last must have been left by all.
  if (first_open_ == 0 && window_.index >= 2 && exposes_memory()) {
    for (const int peer : local_peers_) {
      const Slot& theirs = peers_[peer].control_block->of(active_->sequence);
      if (!announced(peer) || theirs.left.load(std::memory_order_acquire) < window_.index - 1) {
        return false;
      }
    }
  }
  bool moved = partial_done_ > 0;
  if (moved) {
    run_step(partial_step_);  // which ends before others of its verbs begin
  }
  const auto steps = static_cast<std::uint32_t>(states_.size());
  for (std::uint32_t index = first_open_; index < steps; ++index) {
    if (partial_done_ > 0 || slice_is_over()) {
      return true;
    }
    if (states_[index] != StepState::done && run_step(index)) {
      moved = true;
      partial_step_ = index;
    }
    if (index == first_open_ && states_[index] == StepState::done) {
      ++first_open_;
    }
  }
  if (first_open_ == steps) {
    return end_window();
  }
  return moved;
}

bool Executor::end_window() {
  const std::size_t left = window_.index + 1;
  slot_->left.store(left, std::memory_order_release);
  if (left < windows_.number) {
    context_->ring(local_world_ranks_);
    begin_window(left);
    return true;
  }
  phase_ = Phase::leaving;
  if (!all_inlined()) {
    context_->ring(local_world_ranks_);
  }
  return true;
}

/// Nobody on this host reads memory of another's: nobody waits until it has been left.
bool Executor::all_inlined() const {
  return inlined_ && std::ranges::all_of(local_peers_, [&](int peer) {
           return peers_[peer].announced &&
                  peers_[peer].control_block->of(active_->sequence).inlined != 0;
         });
}

bool Executor::leave() {
  // Who needs no peer's data still hears that all of its host have called the same.
  const bool exposed = exposes_memory();
  for (const int peer : local_peers_) {
    if (!announced(peer)) {
      return false;
    }
    const Slot& theirs = peers_[peer].control_block->of(active_->sequence);
    if (exposed && theirs.left.load(std::memory_order_acquire) < windows_.number) {
      return false;
    }
  }
  if (plan_->traits.reads_peers && !all_inlined() && !read_good_memory()) {
    return false;
  }
  finish_active();
  return true;
}

// A peer that has failed may have given its buffers back before this rank was done reading them.
// Then the job has failed, and word of it is under way.
bool Executor::read_good_memory() {
  for (const int world : local_world_ranks_) {
    if (context_->peer_failed(world)) {
      if (peer_failed_ == comm::Clock::time_point{}) {
        peer_failed_ = context_->wait_policy().now();
      }
      if (context_->wait_policy().now() - peer_failed_ > failure_grace) {
        throw Error(ErrorCode::aborted, text(context_->describe_peer(world), " failed the job"),
                    world);
      }
      return false;
    }
  }
  return true;
}

void Executor::finish_active() {
  control_block_->completed.store(active_->sequence + 1, std::memory_order_release);
  const auto now = context_->wait_policy().now();
  if (stragglers_.warned()) [[unlikely]] {
    tell_who_came(now, stragglers_.came({}));
    stragglers_.forget();
  }
  recorder_.ended(active_->sequence, now, true);
  const std::shared_ptr<Operation> operation = std::move(queue_.front());
  queue_.pop_front();
  phase_ = Phase::idle;
  timed_out_ = false;
  reported_ = unmapped_ = {};
  wire_failure_.reset();
  in_flight_.fetch_sub(1, std::memory_order_release);
  context_->end_operation();
  operation->finish();
}

void Executor::fail_all(const Error& failure) {
  for (std::size_t index = 0; phase_ == Phase::running && index < states_.size(); ++index) {
    if (states_[index] == StepState::posted) {
      comm::MessageRequest& request = requests_[index];
      if (request.state == comm::MessageRequest::State::posted) {
        context_->messages(request.peer).cancel(request);
      }
      context_->end_messages(1);
    }
  }
  phase_ = Phase::idle;
  while (!queue_.empty()) {
    const std::string what = failure.what();
    const std::string call = describe_active();
    recorder_.queued(call_of(*queue_.front()));
    recorder_.ended(queue_.front()->sequence, context_->wait_policy().now(), false);
    const bool named = what.find(call) != std::string::npos;
    const std::shared_ptr<Operation> operation = std::move(queue_.front());
    queue_.pop_front();
    in_flight_.fetch_sub(1, std::memory_order_release);
    context_->end_operation();
    operation->fail(Error(failure.code(), named ? what : text(call, ": ", what), failure.rank()));
  }
}

}  // namespace sprat::collectives
