// One rank's actions, played on the thread that calls. Each handover has a slot from the place
// where the plan says it begins to the one where it ends: before an action, sends that end there
// are waited for, and receives that begin there are posted. mp/handovers.cpp says why that never
// waits in a circle.
//
// A message is a header and as many elements as the same micro-batch had in the last run, so that
// its receive can be posted before its length is known; what is longer follows as a second message,
// of what is shorter the rest is not looked at. Gradients are as long as the outputs before them.
#include "sprat/pipeline.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"
#include "comm/timeline/clock_questions.hpp"
#include "memory/arena.hpp"
#include "mp/actions.hpp"
#include "mp/failure.hpp"
#include "mp/handovers.hpp"
#include "mp/passes/passes.hpp"
#include "mp/pipeline_agreement.hpp"
#include "mp/timeline.hpp"
#include "mp/validate.hpp"

namespace sprat {

using mp::Action;
using mp::Handover;
using mp::handover_header_bytes;
using mp::Op;

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of an action, in words for people.
std::string described(const Action& action) {
  std::string words = mp::to_text(action);
  for (const Action& part : mp::parts_of(action)) {
    words += text(words.empty() ? "" : ", ", "stage ", part.stage);
    if (part.microbatch != mp::no_microbatch) {
      words += text(", micro-batch ", part.microbatch);
    }
  }
  return words;
}

mp::Schedule with_messages(mp::Schedule schedule) {
  const std::vector<std::string> wrong = mp::violations(schedule);
  require(wrong.empty(), schedule.name, " is no valid schedule: ", wrong.empty() ? "" : wrong[0]);
  bool messages = false;
  for (const auto& actions : schedule.actions) {
    messages = messages || std::ranges::any_of(actions, [](const Action& action) {
                 return mp::is_send(action.op) || mp::is_receive(action.op);
               });
  }
  // Its order is one for all ranks together, which is what lets sends wait for their receives.
  if (!messages) {
    return mp::communicate(schedule);
  }
  const auto capacity = mp::least_message_capacity(schedule);
  require(capacity == 0, "the messages of ", schedule.name,
          " need room on their way, or ranks wait for each other for ever; give the schedule "
          "without messages, and the pipeline puts in its own");
  return schedule;
}

}  // namespace

void PipelineStages::recompute(int, int) {}
void PipelineStages::store(int, int) {}
void PipelineStages::load(int, int) {}
void PipelineStages::unshard(int) {}
void PipelineStages::reshard(int) {}
void PipelineStages::reduce(int) {}

class Pipeline::Impl {
 public:
  Impl(Communicator& ranks, mp::Schedule schedule, PipelineStages& stages, PipelineOptions options)
      : stages_(stages), options_(options) {
    // Held against the others' first: a rank that alone found its schedule wrong would be waited
    // for.
    mp::agree_on_schedule(ranks, schedule, options.messages_ahead);
    require(options.messages_ahead >= 0, "messages_ahead is ", options.messages_ahead,
            "; it counts computations, from 0 on");
    require(schedule.ranks() == ranks.size(), schedule.name, " is for ", schedule.ranks(),
            " ranks, but ", ranks.name(), " has ", ranks.size());
    // Equal schedules have equal faults, so from here on every rank throws or none.
    schedule_ = with_messages(std::move(schedule));
    const std::vector<std::size_t> most = mp::agree_on_elements(ranks, schedule_, stages);
    ranks_.emplace(ranks.duplicate(text(ranks.name(), ".pipeline"), Failing::together));
    open_trace();
    plan_ = mp::plan_handovers(schedule_, ranks.rank(), most, options.messages_ahead);
    arena_.emplace(plan_.slots);
    // In the first run nothing is known of lengths, so messages are as long as they may be.
    states_.resize(plan_.handovers.size());
    for (std::size_t i = 0; i < states_.size(); ++i) {
      states_[i].expected = plan_.handovers[i].most_elements;
    }
    times_.resize(actions().size());
    list_message_places();
  }

  void run() {
    std::ranges::fill(times_, ActionTime{});
    sends_ended_ = std::make_shared<std::vector<std::atomic<double>>>(actions().size());
    place_ = 0;
    try {
      if (const auto failure = ranks_->failure()) {
        throw Error(*failure);
      }
      for (; place_ < actions().size(); ++place_) {
        end_handovers();
        begin_handovers();
        play(actions()[place_]);
      }
      end_handovers();
      end_rests();
    } catch (...) {
      fail(std::current_exception());
    }
    trace();
  }

  const mp::Schedule& schedule() const noexcept { return schedule_; }
  std::size_t message_bytes() const noexcept { return plan_.slots.total(); }
  std::span<const ActionTime> times() const noexcept { return times_; }
  mp::Timeline timeline();

 private:
  struct HandoverState {
    memory::Lease lease;
    Work work;
    std::size_t count = 0;     ///< Elements of this run, once known.
    std::size_t expected = 0;  ///< Elements of the message that both ends count on.
    std::size_t place = 0;     ///< Of its send or receive, if it has one.
  };

  /// Of a message that is longer than both ends counted on, in memory of its own.
  struct SentRest {
    std::vector<float> elements;
    Work work;
  };

  const std::vector<Action>& actions() const {
    return schedule_.actions[std::size_t(ranks_->rank())];
  }
  const Handover& handover(int index) const { return plan_.handovers[std::size_t(index)]; }
  HandoverState& state(int index) { return states_[std::size_t(index)]; }
  bool is_sent(const Handover& one) const {
    return one.from != one.to && one.from == ranks_->rank();
  }
  bool is_received(const Handover& one) const {
    return one.from != one.to && one.to == ranks_->rank();
  }
  std::byte* bytes_of(int index) { return static_cast<std::byte*>(state(index).lease.data()); }
  float* elements_of(int index) {
    return reinterpret_cast<float*>(bytes_of(index) + handover_header_bytes);
  }
  /// The message's tag, and behind it that of its rest.
  int tag_of(const Handover& one) const {
    return 4 * (one.stage * schedule_.microbatches + one.microbatch) + (one.forward ? 0 : 2);
  }
  Options message_options() const { return {.timeout = options_.timeout}; }

  void list_message_places();
  void open_trace();
  void trace();
  std::uint64_t flow_of(const Action& message) const;
  void end_handovers();
  void end_rests();
  void begin_handovers();
  void play(const Action& action);
  void forward(const Action& action);
  void backward(const Action& action);
  void send(int index);
  void await(int index);
  void await_inputs(const Action& part);
  std::span<const float> received(int index);
  template <class Function>
  void time(const Function& function);
  [[noreturn]] void fail(std::exception_ptr cause);

  PipelineStages& stages_;
  PipelineOptions options_;
  mp::Schedule schedule_;
  std::optional<Communicator> ranks_;  ///< Of its own: tags of its users' messages are theirs.
  mp::HandoverPlan plan_;
  std::optional<memory::Arena> arena_;
  std::vector<SentRest> rests_;        ///< Of this run.
  std::vector<HandoverState> states_;  ///< By handover. Leases go before the arena.
  std::vector<ActionTime> times_;
  /// Of the run under way, by place; 0: not yet. Shared with notices, which may come late. Relaxed
  /// suffices: a time that is not seen yet is taken when the send is waited for.
  std::shared_ptr<std::vector<std::atomic<double>>> sends_ended_;
  std::size_t place_ = 0;  ///< The action under way.
  /// Where runs are noted; null: nowhere. No two pipelines of a job have the same `number`.
  struct {
    Tracer* tracer = nullptr;
    std::uint64_t number = 0, runs = 0;
  } traced_;
};

/// Ranks of one pipeline count its runs alike, so that number, run and tag name a message on both
/// ends.
void Pipeline::Impl::open_trace() {
  traced_.tracer = ranks_->tracer();
  if (traced_.tracer == nullptr) {
    return;
  }
  traced_.number = traced_.tracer->unique();
  ranks_
      ->broadcast(elements(std::span(&traced_.number, 1)), 0,
                  {.timeout = {}, .blocking = true, .digested = false})
      .wait();
}

std::uint64_t Pipeline::Impl::flow_of(const Action& message) const {
  const Action send = mp::is_send(message.op) ? message : mp::other_end_of(message);
  const int tag = 4 * (send.stage * schedule_.microbatches + send.microbatch) +
                  (send.op == Op::send_forward ? 0 : 2);
  const std::uint64_t run = mix_bits(traced_.number + golden_step * traced_.runs);
  return mix_bits(run + golden_step * static_cast<std::uint64_t>(tag));
}

// All at once behind the run, from times that are taken anyway.
void Pipeline::Impl::trace() {
  if (traced_.tracer == nullptr) {
    return;
  }
  const auto at = [](double seconds) {
    return std::chrono::steady_clock::time_point(
        std::chrono::nanoseconds(std::llround(seconds * 1e9)));
  };
  for (std::size_t place = 0; place < actions().size(); ++place) {
    const Action& action = actions()[place];
    const ActionTime& time = times_[place];
    if (time.end <= 0) {
      continue;  // the run failed before
    }
    const bool message = mp::is_send(action.op) || mp::is_receive(action.op);
    const std::string name = mp::to_text(action);
    traced_.tracer->add({.row = mp::row_of(action.op),
                         .name = name,
                         .start = at(time.start),
                         .end = at(time.end),
                         .stage = action.stage,
                         .microbatch = action.microbatch,
                         .flow = message ? flow_of(action) : 0,
                         .receives = mp::is_receive(action.op)});
  }
  ++traced_.runs;
}

void Pipeline::Impl::list_message_places() {
  for (std::size_t place = 0; place < actions().size(); ++place) {
    const Action& action = actions()[place];
    const int stage = action.stage, microbatch = action.microbatch;
    if (action.op == Op::send_forward) {
      state(plan_.output(stage, microbatch)).place = place;
    } else if (action.op == Op::receive_forward) {
      state(plan_.input(stage, microbatch)).place = place;
    } else if (action.op == Op::send_backward) {
      state(plan_.input_gradient(stage, microbatch)).place = place;
    } else if (action.op == Op::receive_backward) {
      state(plan_.output_gradient(stage, microbatch)).place = place;
    }
  }
}

// Only here does a rank stand still for its sends: a slot whose life is over is another one's next.
void Pipeline::Impl::end_handovers() {
  for (const int index : plan_.end[place_]) {
    HandoverState& one = state(index);
    if (is_sent(handover(index))) {
      ActionTime& time = times_[one.place];
      const double from = seconds_now();
      const bool was_done = one.work.done();
      one.work.wait();
      // The notice may come a little later than the wait's end, for another thread may give it.
      const double ended = (*sends_ended_)[one.place].load(std::memory_order_relaxed);
      time.end = ended > 0 ? ended : seconds_now();
      time.waited = was_done ? 0 : seconds_now() - from;
    }
    one.work = Work();
    one.lease = memory::Lease();
  }
}

// The rest of a message that is longer than in the last run is received where it is used, no
// sooner: who waited for that in the midst of the run might be waited for in turn.
void Pipeline::Impl::end_rests() {
  for (SentRest& rest : rests_) {
    rest.work.wait();
  }
  rests_.clear();
}

void Pipeline::Impl::begin_handovers() {
  for (const int index : plan_.begin[place_]) {
    HandoverState& one = state(index);
    const Handover& what = handover(index);
    one.lease = arena_->take(index);
    if (is_received(what)) {
      const std::size_t bytes = handover_header_bytes + one.expected * sizeof(float);
      one.work = ranks_->recv({bytes_of(index), bytes, DType::u8}, what.from, tag_of(what),
                              message_options());
    }
  }
}

void Pipeline::Impl::play(const Action& action) {
  const int stage = action.stage, microbatch = action.microbatch;
  for (const Action& part : mp::parts_of(action)) {
    await_inputs(part);
  }
  switch (action.op) {
    case Op::forward:
      return time([&] { forward(action); });
    case Op::backward:
    case Op::backward_input:
      return time([&] { backward(action); });
    case Op::overlap:
      return time([&] {
        // One after the other: a thread computes, and their messages are beside it anyway.
        for (const Action& part : mp::parts_of(action)) {
          part.op == Op::forward ? forward(part) : backward(part);
        }
      });
    case Op::backward_weight:
      return time([&] { stages_.backward_weight(stage, microbatch); });
    case Op::recompute:
      return time([&] { stages_.recompute(stage, microbatch); });
    case Op::store:
      return time([&] { stages_.store(stage, microbatch); });
    case Op::load:
      return time([&] { stages_.load(stage, microbatch); });
    case Op::unshard:
      return time([&] { stages_.unshard(stage); });
    case Op::reshard:
      return time([&] { stages_.reshard(stage); });
    case Op::reduce:
      return time([&] { stages_.reduce(stage); });
    case Op::send_forward:
      return send(plan_.output(stage, microbatch));
    case Op::send_backward:
      return send(plan_.input_gradient(stage, microbatch));
    case Op::receive_forward:
    case Op::receive_backward:
      return;  // posted already, and waited for where it is needed
  }
}

/// Waits are no computation, so they come before it.
void Pipeline::Impl::await_inputs(const Action& part) {
  if (part.op == Op::forward) {
    await(plan_.input(part.stage, part.microbatch));
  } else if (mp::gives_input_gradient(part.op)) {
    await(plan_.output_gradient(part.stage, part.microbatch));
  }
}

void Pipeline::Impl::await(int index) {
  if (index < 0 || !is_received(handover(index))) {
    return;
  }
  HandoverState& one = state(index);
  const Handover& what = handover(index);
  ActionTime& time = times_[one.place];
  time.start = seconds_now();
  one.work.wait();
  std::uint64_t count = 0;
  std::memcpy(&count, bytes_of(index), sizeof count);
  if (count > what.most_elements || (!what.forward && count != one.expected)) {
    throw Error(
        ErrorCode::mismatch,
        text("rank ", what.from, " sent ", count, " elements of micro-batch ", what.microbatch,
             " behind stage ", what.stage, ", where ", what.forward ? "at most " : "",
             what.forward ? what.most_elements : one.expected, " can be"));
  }
  if (count > one.expected) {
    const Elements rest{elements_of(index) + one.expected, count - one.expected, DType::f32};
    ranks_->recv(rest, what.from, tag_of(what) + 1, message_options()).wait();
  }
  one.count = one.expected = count;
  time.end = seconds_now();
  time.waited = time.end - time.start;
}

void Pipeline::Impl::forward(const Action& action) {
  const int output = plan_.output(action.stage, action.microbatch);
  const std::span<float> room =
      output < 0 ? std::span<float>()
                 : std::span(elements_of(output), handover(output).most_elements);
  const std::size_t count =
      stages_.forward(action.stage, action.microbatch,
                      received(plan_.input(action.stage, action.microbatch)), room);
  require(count <= room.size(), "its forward wrote ", count, " elements, and the stage gives ",
          room.size(), " at most; most_elements() says how many");
  if (output >= 0) {
    // Known on both ends now: its gradient's message needs no more than this.
    state(output).count = count;
    if (const int gradient = plan_.output_gradient(action.stage, action.microbatch);
        gradient >= 0) {
      state(gradient).expected = count;
    }
  }
}

void Pipeline::Impl::backward(const Action& action) {
  const int input = plan_.input(action.stage, action.microbatch);
  const int result = plan_.input_gradient(action.stage, action.microbatch);
  std::span<float> gradient;
  if (result >= 0) {
    HandoverState& one = state(result);
    one.count = one.expected = state(input).count;
    gradient = {elements_of(result), one.count};
  }
  const std::span<const float> output_gradient =
      received(plan_.output_gradient(action.stage, action.microbatch));
  if (action.op == Op::backward) {
    stages_.backward(action.stage, action.microbatch, output_gradient, gradient);
  } else {
    stages_.backward_input(action.stage, action.microbatch, output_gradient, gradient);
  }
}

std::span<const float> Pipeline::Impl::received(int index) {
  return index < 0 ? std::span<const float>()
                   : std::span<const float>(elements_of(index), state(index).count);
}

void Pipeline::Impl::send(int index) {
  HandoverState& one = state(index);
  const Handover& what = handover(index);
  // The header lies before the elements, so that both are one message.
  const std::uint64_t count = one.count;
  std::memcpy(bytes_of(index), &count, sizeof count);
  times_[one.place].start = seconds_now();
  const std::size_t bytes = handover_header_bytes + one.expected * sizeof(float);
  one.work = ranks_->send(ConstElements(bytes_of(index), bytes, DType::u8), what.to, tag_of(what),
                          message_options());
  if (one.count > one.expected) {
    std::erase_if(rests_, [](const SentRest& rest) { return rest.work.done(); });
    const float* const from = elements_of(index) + one.expected;
    SentRest& rest =
        rests_.emplace_back(std::vector<float>(from, from + one.count - one.expected), Work());
    rest.work = ranks_->send(elements(std::as_const(rest.elements)), what.to, tag_of(what) + 1,
                             message_options());
  }
  one.expected = one.count;
  one.work.on_done([ended = sends_ended_, place = one.place] {
    (*ended)[place].store(seconds_now(), std::memory_order_relaxed);
  });
}

template <class Function>
void Pipeline::Impl::time(const Function& function) {
  ActionTime& time = times_[place_];
  time.start = seconds_now();
  function();
  time.end = seconds_now();
}

void Pipeline::Impl::fail(std::exception_ptr cause) {
  const std::string where =
      text("rank ", ranks_->rank(), " of ", ranks_->name(), ", ",
           place_ < actions().size() ? described(actions()[place_]) : "behind its last action");
  const Error error = failure_at(where, cause);
  // The others wait for what this rank will never send. Of a job that has failed it changes
  // nothing.
  // Before waiting for what is under way, which ends by it.
  ranks_->abort(error.what());
  trace();
  for (HandoverState& one : states_) {
    try {
      one.work.wait();
    } catch (const Error&) {
      // Of the same failure; its memory is this rank's again.
    }
    one.work = Work();
    one.lease = memory::Lease();
  }
  for (SentRest& rest : rests_) {
    try {
      rest.work.wait();
    } catch (const Error&) {
      // As above.
    }
  }
  rests_.clear();
  throw Error(error);
}

namespace {

using comm::timeline::ClockAnswer;
using comm::timeline::ClockReading;

/// Times differ from run to run.
constexpr Options of_this_run{.timeout = {}, .blocking = true, .digested = false};

std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// By rank. The first rank of each host asks for all of them: they have one clock, and their times
/// stay as exact among each other as they are.
std::vector<ClockReading> clock_readings(Communicator& ranks, int tag) {
  const auto& hosts = ranks.hosts();
  std::vector<int> first;                              // ranks, in the order of hosts
  std::vector<std::size_t> first_of(hosts.size(), 0);  // of the rank's host
  std::map<int, std::size_t> seen;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto [entry, is_first] = seen.try_emplace(hosts[rank], rank);
    first_of[rank] = entry->second;
    if (is_first) {
      first.push_back(int(rank));
    }
  }
  ClockReading mine;
  const auto place = std::ranges::find(first, ranks.rank());
  if (place != first.end()) {
    const comm::timeline::ClockLine line{
        .send =
            [&](int host, const ClockAnswer& told) {
              ranks.send(elements(told), first[std::size_t(host)], tag, of_this_run).wait();
            },
        .receive =
            [&](int host) {
              ClockAnswer told{};
              ranks.recv(elements(told), first[std::size_t(host)], tag, of_this_run).wait();
              return told;
            },
        .now = nanoseconds_now};
    mine = comm::timeline::ask_for_clock(line, int(place - first.begin()), int(first.size()));
  }
  const std::array<std::int64_t, 2> told = {mine.offset, mine.error};
  std::vector<std::int64_t> all(2 * hosts.size());
  ranks.all_gather(elements(told), elements(all), of_this_run).wait();
  std::vector<ClockReading> readings;
  for (const std::size_t rank : first_of) {
    readings.push_back({.offset = all[2 * rank], .error = all[2 * rank + 1]});
  }
  return readings;
}

}  // namespace

mp::Timeline Pipeline::Impl::timeline() {
  constexpr double nano = 1e-9;
  const std::vector<ClockReading> clocks =
      clock_readings(*ranks_, 4 * schedule_.stages() * schedule_.microbatches);
  const double offset = nano * double(clocks[std::size_t(ranks_->rank())].offset);
  // The schedule says how many each rank has, so that one collective brings them all.
  std::vector<double> mine;
  for (const ActionTime& time : times_) {
    mine.insert(mine.end(), {time.start + offset, time.end + offset, time.waited});
  }
  std::vector<std::size_t> counts;
  std::size_t count = 0;
  for (const auto& actions : schedule_.actions) {
    counts.push_back(3 * actions.size());
    count += counts.back();
  }
  std::vector<double> all(count);
  ranks_->all_gatherv(elements(std::as_const(mine)), elements(all), counts, of_this_run).wait();
  std::vector<mp::MeasuredRank> measured;
  auto next = all.begin();
  for (const auto& actions : schedule_.actions) {
    mp::MeasuredRank rank;
    for (const Action& action : actions) {
      rank.spans.push_back({.start = next[0], .end = next[1]});
      rank.held.push_back(mp::is_send(action.op) ? next[2] : 0);
      next += 3;
    }
    measured.push_back(std::move(rank));
  }
  mp::Timeline timeline = mp::timeline_of(schedule_, std::move(measured));
  timeline.clock_error =
      nano * double(std::ranges::max_element(clocks, {}, &ClockReading::error)->error);
  return timeline;
}

Pipeline::Pipeline(Communicator& ranks, mp::Schedule schedule, PipelineStages& stages,
                   PipelineOptions options)
    : impl_(std::make_unique<Impl>(ranks, std::move(schedule), stages, options)) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

void Pipeline::run() { impl_->run(); }
const mp::Schedule& Pipeline::schedule() const noexcept { return impl_->schedule(); }
std::size_t Pipeline::message_bytes() const noexcept { return impl_->message_bytes(); }
std::span<const ActionTime> Pipeline::times() const noexcept { return impl_->times(); }
mp::Timeline Pipeline::timeline() { return impl_->timeline(); }

}  // namespace sprat
