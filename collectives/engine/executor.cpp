#include "collectives/engine/executor.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "comm/base/check.hpp"
#include "comm/base/reduction_observer.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;

// A call of at most so many bytes takes some tens of microseconds once all have made it.
constexpr std::size_t most_stayed_for = 1 << 20;
// A failed peer tells why within this time.
constexpr auto failure_grace = 1s;

}  // namespace

Executor::Executor(std::shared_ptr<comm::Context> context, Membership membership,
                   std::shared_ptr<const Grouping> grouping, std::shared_ptr<const Rules> rules)
    : context_(std::move(context)),
      membership_(std::move(membership)),
      grouping_(std::move(grouping)),
      plans_(std::move(rules)),
      recorder_(context_, membership_.id, membership_.name, membership_.rank,
                membership_.world_ranks),
      digests_(context_, membership_.id, membership_.name, membership_.rank,
               membership_.world_ranks),
      peers_(*context_, membership_, *grouping_),
      scope_(context_->open_scope({.communicator = membership_.id,
                                   .domain = membership_.domain,
                                   .name = membership_.name,
                                   .world_ranks = membership_.world_ranks,
                                   .shown = &peers_.mine().failed})),
      memory_(*context_, membership_, peers_),
      steps_(*context_, membership_, peers_, memory_),
      eager_(*context_, membership_, peers_, *scope_),
      stalls_(context_->config().straggler_after) {
  const auto token = context_->take_token();
  context_->add(this);
}

// Peers may still read what this rank inlined in its last operations, which it may have been
// through with long before them: its control block is used again when they are done with it.
Executor::~Executor() {
  if (!context_->here()) {
    return;
  }
  drain();
  const bool failed = scope_->first() != nullptr;
  if (!failed) {
    context_->note_freed(membership_.id, history_.next());
  }
  context_->remove(this);
  context_->close_scope(*scope_);  // before the control block may be another communicator's
  const auto token = context_->take_token();
  context_->free_control_when(membership_.control_blocks[membership_.rank], sizeof(ControlBlock),
                              peers_.all_completed_or_left(history_.next()));
  if (failed) {
    digests_.note_failure();
    peers_.leave();  // the calls that they wait for never come
    context_->progress().forget_messages(membership_.id);
  }
}

// --- how operations come ---

void Executor::follow(std::shared_ptr<const Rules> rules) {
  drain();
  const auto token = context_->take_token();
  plans_ = PlanCache(std::move(rules));
  eager_.forget();
}

[[gnu::hot]] bool Executor::call_eagerly(const Signature& signature, DType results,
                                         const std::byte* input, std::byte* output,
                                         const std::function<std::shared_ptr<Operation>()>& make) {
  auto token = context_->try_token();
  if (!token || !context_->idle() || scope_->first() != nullptr) {
    return false;
  }
  const EagerCalls::Known* known = eager_.find(signature, results);
  if (known == nullptr) {
    return false;
  }
  const EagerCalls::Announcement call{*known->eager, signature, prior_calls_hash_, history_.next()};
  if (!eager_.may_announce(call)) {
    return false;
  }
  eager_.announce(call, input);
  history_.add(signature, call.prior_calls_hash, nullptr, call.sequence);
  prior_calls_hash_ = completes_locally(signature) ? digest(signature, call.prior_calls_hash) : 0;
  // Written down while the announcements travel: that costs the call nothing.
  comm::Clock::time_point now = context_->wait_policy().recent();
  recorder_.began({call.sequence, signature, known->bytes, static_cast<int>(signature.detail), now},
                  known->algorithm);
  // The announcement has a copy of the input, so peers cannot have written over it yet.
  if (digests_.on()) [[unlikely]] {
    digests_.take_input(memory_of(*known, call, input, output));
  }
  if (eager_.wait(call, now) &&
      eager_.finish(*known->eager, known->arithmetic, call.sequence, input, output)) {
    if (digests_.on()) [[unlikely]] {
      digests_.over(memory_of(*known, call, input, output), now);
    }
    peers_.complete(call.sequence);
    if (call.eager.runs_ahead) {
      peers_.ring();  // a rank that is far ahead may wait for just that
    }
    recorder_.over(call.sequence, now);
    return true;
  }
  const std::shared_ptr<Operation> operation = make();
  operation->sequence = call.sequence;
  operation->prior_calls_hash = call.prior_calls_hash;
  enqueue(operation);
  begin_active();
  phase_ = Phase::meeting;
  token.unlock();
  operation->wait();
  return true;
}

[[gnu::hot]] void Executor::post(const std::shared_ptr<Operation>& operation, bool blocking) {
  auto token = context_->take_token();
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
  if (queue_.size() > 1) {
    recorder_.queued(call_of(*operation));
    return;
  }
  if (blocking && alone && is_short(operation->problem)) {
    poll_alone(*operation);
    return;
  }
  const comm::Advance first = advance();
  if (!(blocking && alone) && first.left != nullptr) {
    run_first(std::move(token), *first.left);
  }
}

// As far as one slice goes: the caller may not wait for a long time, and nobody else may drive.
void Executor::run_first(comm::Context::Token token, comm::BulkTask& task) {
  comm::Progress& progress = context_->progress();
  const comm::Drivers::Round round{.entry = progress.drivers().find(this), .task = &task};
  if (!progress.claim(round)) {
    return;
  }
  token.unlock();
  const auto again = progress.carry_out(round);
  advance();              // tells peers what has been done
  context_->ring_self();  // whoever drives may have found this driver busy
}

[[gnu::hot]] void Executor::enqueue(const std::shared_ptr<Operation>& operation) {
  operation->posted = context_->wait_policy().now();
  operation->deadline = operation->posted + operation->timeout;
  recorder_.called(operation->sequence);
  queue_.push_back(operation);
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  context_->begin_operation();
}

// Once all have called it, it is over before anybody could have taken its work over.
bool Executor::is_short(const Problem& problem) const {
  return grouping_->hosts() == 1 && !exchanges(problem.collective) &&
         problem.payload_bytes() <= most_stayed_for;
}

// While nothing else needs driving, and for as long as others may wait for the token. Work is done
// where it comes up: to leave it for later costs a short call some percent.
[[gnu::hot]] void Executor::poll_alone(const Operation& operation) {
  steps_.leave_work_from(std::numeric_limits<std::size_t>::max());
  comm::WaitPolicy& wait_policy = context_->wait_policy();
  comm::Clock::time_point idle_since{};
  int round = 0;
  while (!operation.done() && !context_->token_wanted()) {
    if (advance().moved) {
      round = 0;  // in the midst of something: to give the core away now would only delay it
      continue;
    }
    if (round == comm::unclocked_rounds && idle_since == comm::Clock::time_point{}) {
      idle_since = wait_policy.now();
    }
    if (!wait_policy.rest(round++, comm::Awaited::announcement)) {
      break;
    }
  }
  steps_.leave_work_from(context_->progress().least_task());
  if (idle_since != comm::Clock::time_point{}) {
    context_->add_waited(idle_since, wait_policy.now());
  }
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

// --- the active operation ---

[[gnu::hot]] comm::Advance Executor::advance() noexcept {
  if (queue_.empty()) {
    return {};
  }
  try {
    return advance_queue();
  } catch (const Unmapped& memory) {
    if (const auto error = stalls_.misses(*this, memory, context_->wait_policy().now())) {
      fail_active(*error);
    }
    return {};
  } catch (const Error& error) {
    fail_active(error);
  } catch (const std::exception& error) {
    fail_active(Error(ErrorCode::internal, error.what()));
  }
  return {.moved = true};
}

[[gnu::hot]] comm::Advance Executor::advance_queue() {
  if (const Error* failure = scope_->first()) {
    fail_all(*failure);
    return {.moved = true};
  }
  bool moved = false;
  steps_.begin_slice();
  while (!queue_.empty() && !steps_.slice_is_over() && steps_.left() == nullptr &&
         advance_active()) {
    moved = true;
  }
  if (phase_ != Phase::idle && peers_.differs() && !stalls_.reported()) [[unlikely]] {
    stalls_.report(*this, context_->wait_policy().now());
  }
  if (moved) {
    idle_calls_ = 0;
    stalls_.moved();
  } else if (++idle_calls_ % 64 == 0) {
    stalls_.look(*this, context_->wait_policy().now());
  }
  return {.moved = moved, .left = steps_.left()};
}

// One move; false if nothing can be done now.
[[gnu::hot]] bool Executor::advance_active() {
  switch (phase_) {
    case Phase::idle:
      begin_active();
      phase_ = Phase::opening;
      announce();
      return true;
    case Phase::opening:
      return announce();
    case Phase::meeting:
      return meet();
    case Phase::gathering:
      return choose_windows();
    case Phase::running:
      return run_window();
    case Phase::leaving:
      return leave();
  }
  return false;
}

[[gnu::hot]] void Executor::begin_active() {
  active_ = queue_.front().get();
  peers_.follow(active_->sequence, active_->signature, active_->prior_calls_hash);
  // Programs call the same again and again. To count references anew would fetch what a call of
  // 64 KiB has pushed out of the caches.
  if (const auto& planned = plans_.of(active_->problem); planned_ != planned) {
    planned_ = planned;
  }
  chosen_ = planned_.get();
  recorder_.running(call_of(*active_), chosen_->algorithm->name);
}

std::size_t Executor::most_shown_bytes() const {
  return chosen_->eager ? chosen_->eager->shown_bytes() : Slot::inline_bytes;
}

// Publishes what this rank calls and where its buffers lie, unless it has run so far ahead that
// peers may still read what it published long ago.
[[gnu::hot]] bool Executor::announce() {
  // Before anything is told: from then on an output may be written that lies over the input.
  if (is_digested() && !digests_.take_input(memory_of(*active_))) {
    return steps_.end_slice();  // in pieces: others may want the token
  }
  if (!peers_.may_open(active_->sequence, most_shown_bytes())) {
    return false;
  }
  if (chosen_->eager) {
    eager_.remember(*active_, *chosen_);
    eager_.announce(
        {*chosen_->eager, active_->signature, active_->prior_calls_hash, active_->sequence},
        active_->input);
    phase_ = Phase::meeting;
    return true;
  }
  if (!memory_.copy_input(*active_)) {
    return steps_.end_slice();
  }
  Slot& slot = peers_.open(active_->sequence);
  memory_.announce(*active_, *chosen_->plan, chosen_->out_of_place == nullptr, slot);
  peers_.announce(slot, active_->sequence, active_->signature, active_->prior_calls_hash);
  phase_ = Phase::gathering;
  return true;
}

bool Executor::has_met() {
  if (!chosen_->eager->runs_ahead) {
    return peers_.all_announced();
  }
  return std::ranges::all_of(chosen_->eager->reads, [&](const EagerPlan::Peer& peer) {
    return peers_.announced(peer.rank);
  });
}

[[gnu::hot]] bool Executor::meet() {
  if (!has_met()) {
    return false;
  }
  if (eager_.finish(*chosen_->eager, arithmetic_of(active_->problem), active_->sequence,
                    active_->input, active_->output)) {
    finish_active();
  } else {
    memory_.follow_inlined(*active_, peers_.mine().of(active_->sequence));
    phase_ = Phase::gathering;  // by the plan's steps, then
  }
  return true;
}

// All ranks cut alike: on several hosts by what all know of the job, on one by where every
// announced buffer lies.
[[gnu::hot]] bool Executor::choose_windows() {
  if (chosen_->out_of_place && !choose_plan()) {
    return false;
  }
  const Problem& problem = active_->problem;
  const std::size_t staging_bytes = context_->config().staging_bytes;
  Access access = Access::direct;
  if (grouping_->hosts() > 1) {
    access = access_between_hosts(problem, *chosen_->algorithm, context_->everybody_readable());
  } else if (asks_announcements(problem, staging_bytes)) {
    if (!peers_.all_announced()) {
      return false;
    }
    access = memory_.somebody_stages() ? Access::staged : Access::direct;
  }
  windows_ = cut(problem, access, staging_bytes);
  begin_window(0);
  phase_ = Phase::running;
  return true;
}

// Another plan may be better if no rank's output lies over its input, as their announcements tell.
bool Executor::choose_plan() {
  if (!peers_.all_announced()) {
    return false;
  }
  if (!memory_.somebody_in_place()) {
    chosen_ = chosen_->out_of_place.get();
    recorder_.running(call_of(*active_), chosen_->algorithm->name);
  }
  return true;
}

[[gnu::hot]] void Executor::begin_window(std::size_t index) {
  const Problem& problem = active_->problem;
  window_ = window_of(problem, windows_, index);
  if (windows_.number > 1 && problem.counts) {
    Problem part = problem;
    part.count = window_.count;
    part.counts = window_.counts;
    window_plan_ = std::make_shared<const Plan>(make_plan(part, *chosen_->algorithm));
  } else if (windows_.number > 1) {
    window_plan_ = plans_.of(problem, *chosen_->algorithm, window_.count)->plan;
  }
  const Plan& plan = windows_.number > 1 ? *window_plan_ : *chosen_->plan;
  steps_.begin(*active_, plan, window_);
  memory_.begin(plan, windows_, window_);
  if (index > 0) {  // peers may look at this window's signals from here on
    peers_.mine()
        .of(active_->sequence)
        .signals.store(Slot::progress(index, 0), std::memory_order_release);
  }
}

// Staging and scratch alternate: the window before the last must have been left by all.
[[gnu::hot]] bool Executor::run_window() {
  if (!steps_.begun() && window_.index >= 2 && memory_.exposed() &&
      !peers_.all_left(window_.index - 1)) {
    return false;
  }
  if (!memory_.stage_input()) {
    return steps_.end_slice();
  }
  const bool moved = steps_.advance();
  return steps_.over() ? end_window() : moved;
}

bool Executor::end_window() {
  const std::size_t next = window_.index + 1;
  if (next < windows_.number) {
    begin_window(next);
  } else {
    phase_ = Phase::leaving;
  }
  return true;
}

// Who needs no peer's data still hears that all of its host have called the same.
[[gnu::hot]] bool Executor::leave() {
  if (!(memory_.exposed() ? peers_.all_left(windows_.number) : peers_.all_announced())) {
    return false;
  }
  if (steps_.reads_peers() && !memory_.all_inlined() && !read_good_memory()) {
    return false;
  }
  // Peers have been told already that they may go on, and nobody waits for this but the caller.
  if (is_digested() && !digests_.take_result(memory_of(*active_))) {
    return steps_.end_slice();
  }
  finish_active();
  return true;
}

// A peer on which the communicator has failed may have given its buffers back before this rank was
// done reading them. Then word of the failure is under way.
[[gnu::hot]] bool Executor::read_good_memory() {
  for (const int peer : peers_.ranks()) {
    if (peers_.has_failed(peer)) {
      const int world = membership_.world_ranks[peer];
      if (peer_failed_ == comm::Clock::time_point{}) {
        peer_failed_ = context_->wait_policy().now();
      }
      if (context_->wait_policy().now() - peer_failed_ > failure_grace) {
        throw Error(ErrorCode::aborted,
                    text(context_->describe_peer(world), " failed ",
                         membership_.domain == 0 ? std::string("the job") : membership_.name),
                    world);
      }
      return false;
    }
  }
  return true;
}

[[gnu::hot]] void Executor::finish_active() {
  peers_.complete(active_->sequence);
  if (chosen_->eager && chosen_->eager->runs_ahead) {
    peers_.ring();
  }
  const auto now = context_->wait_policy().now();
  stalls_.end(*this, now);
  if (is_digested()) {
    digests_.over(memory_of(*active_), now);
  }
  // Eager calls are not told of: what they take is the meeting, whatever the cores do.
  if (ReductionObservers::any() && reduces(active_->problem.collective)) {
    ReductionObservers::tell(now - times().since, active_->problem.payload_bytes());
  }
  recorder_.ended(active_->sequence, now, true);
  const std::shared_ptr<Operation> operation = std::move(queue_.front());
  queue_.pop_front();
  phase_ = Phase::idle;
  steps_.forget_wire_failure();
  in_flight_.fetch_sub(1, std::memory_order_release);
  context_->end_operation();
  operation->finish();
}

void Executor::fail_active(const Error& error) {
  context_->fail(*scope_, Error(error.code(), text(words(), ": ", error.what()), error.rank()));
}

void Executor::fail_all(const Error& failure) {
  if (phase_ == Phase::running) {
    steps_.cancel();
  }
  phase_ = Phase::idle;
  while (!queue_.empty()) {
    const std::string what = failure.what();
    const std::string call = words();
    recorder_.queued(call_of(*queue_.front()));
    recorder_.ended(queue_.front()->sequence, context_->wait_policy().now(), false);
    const bool named = what.find(call) != std::string::npos;
    const std::shared_ptr<Operation> operation = std::move(queue_.front());
    queue_.pop_front();
    in_flight_.fetch_sub(1, std::memory_order_release);
    context_->end_operation();
    operation->fail(Error(failure.code(), named ? what : text(call, ": ", what), failure.rank()),
                    scope_);
  }
}

// --- what is told of it ---

std::string Executor::under_way() const { return queue_.empty() ? "" : words(); }

std::string Executor::words() const {
  const Operation& operation = *queue_.front();
  return text(describe(operation.problem), " (operation ", operation.sequence, " of ",
              membership_.name, ")");
}

Recorder::PostedCall Executor::call_of(const Operation& operation) {
  return {operation.sequence, operation.signature, operation.problem.payload_bytes(),
          operation.problem.root, operation.posted};
}

// Apart from the short way, which has no registers to spare for what is seldom wanted.
[[gnu::cold]] digests::CallMemory Executor::memory_of(const EagerCalls::Known& known,
                                                      const EagerCalls::Announcement& call,
                                                      const std::byte* input, std::byte* output) {
  return {.signature = call.signature,
          .sequence = call.sequence,
          .root = static_cast<int>(call.signature.detail),
          .uneven = false,
          .result_type = known.arithmetic.output,
          .extents = known.extents,
          .input = input,
          .result = output};
}

digests::CallMemory Executor::memory_of(const Operation& operation) {
  const Problem& problem = operation.problem;
  return {.signature = operation.signature,
          .sequence = operation.sequence,
          .root = problem.root,
          .uneven = problem.counts != nullptr,
          .result_type = problem.output,
          .extents = digests::extents_of(problem),
          .input = operation.input,
          .result = operation.output};
}

// Nothing of calls behind the one under way: where that one waits lies the first disagreement, if
// there is any.
comm::Recall Executor::called(std::uint64_t sequence) const {
  using State = comm::Recall::State;
  if (sequence >= history_.next() || (!queue_.empty() && sequence > queue_.front()->sequence)) {
    return {State::not_yet};
  }
  if (!history_.remembers(sequence)) {
    return {State::forgotten};
  }
  const std::string words = history_.words(sequence);
  const auto* first = reinterpret_cast<const std::byte*>(words.data());
  return {State::called, comm::Blob(first, first + words.size())};
}

// The next operation had this rank to itself when the last one ended, if it was called by then.
WatchedCall::Times Executor::times() const {
  return {.posted = active_->posted,
          .since = std::max(active_->posted, recorder_.last_end()),
          .deadline = active_->deadline,
          .timeout = active_->timeout};
}

const WireFailure* Executor::wire_failure() const {
  return steps_.wire_failure() ? &*steps_.wire_failure() : nullptr;
}

std::vector<int> Executor::late() const {
  std::vector<int> ranks = members_of(context_->lateness(membership_.id, active_->sequence).late);
  std::erase_if(ranks,
                [&](int world) { return context_->peer(world).local; });  // control blocks know
  std::ranges::copy(peers_.late(active_->sequence), std::back_inserter(ranks));
  std::ranges::sort(ranks);
  return ranks;
}

std::vector<int> Executor::silent() const {
  return members_of(context_->lateness(membership_.id, active_->sequence).silent);
}

// The coordinator knows no members: one that was lost before, and answers nothing, may be of
// others.
std::vector<int> Executor::members_of(std::vector<int> ranks) const {
  std::erase_if(ranks, [&](int world) { return !scope_->has(world); });
  return ranks;
}

std::vector<int> Executor::awaited() const {
  std::set<int> ranks;
  const auto add = [&](const std::vector<int>& members) {
    for (const int member : members) {
      ranks.insert(membership_.world_ranks[member]);
    }
  };
  switch (phase_) {
    case Phase::idle:
      break;
    case Phase::opening:
      return peers_.behind(active_->sequence, most_shown_bytes());
    case Phase::meeting:
    case Phase::gathering:
      add(peers_.not_left(active_->sequence, 0));
      break;
    case Phase::running:
      if (!steps_.begun() && window_.index >= 2 && memory_.exposed()) {
        add(peers_.not_left(active_->sequence, window_.index - 1));
      }
      add(steps_.awaited());
      break;
    case Phase::leaving:
      add(peers_.not_left(active_->sequence, windows_.number));
      break;
  }
  return {ranks.begin(), ranks.end()};
}

bool Executor::speaks_for_host() const { return peers_.lowest_that_waits(active_->sequence); }

void Executor::show(const std::vector<int>& ranks, std::size_t late) {
  recorder_.waits(active_->sequence, ranks, late);
}

void Executor::report() {
  context_->report_stall(membership_.id, active_->sequence, called(active_->sequence).words,
                         membership_.world_ranks);
}

void Executor::search() {
  context_->look_for(phase_ == Phase::running ? steps_.far_peers() : std::vector<int>(), scope_);
}

}  // namespace sprat::collectives
