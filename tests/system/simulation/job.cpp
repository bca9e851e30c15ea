#include "tests/system/simulation/job.hpp"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/communicator_impl.hpp"
#include "comm/base/check.hpp"
#include "sprat/communicator.hpp"
#include "tests/system/simulation/payload.hpp"
#include "tests/system/simulation/simulator.hpp"
#include "tests/system/simulation/virtual_coordinator.hpp"
#include "tests/system/simulation/virtual_wires.hpp"

namespace sprat::simulation {
namespace {

using namespace std::chrono_literals;

// Nothing of a scenario takes longer: what has not ended by then hangs.
constexpr auto longest_run = 150s;
// From a loss, a mismatch or an abort until everyone has its error.
constexpr auto error_bound = 3s;
// How often a rank of a busy machine loses its core, and for how long: beyond what makes others
// ask who is late.
constexpr int most_losses = 12;
constexpr nanoseconds most_away = 400ms;

struct Outcome {
  bool ended = false;
  std::optional<Error> error;
  std::string complaint;
  int step = -1;
  Time when{};
  /// Where communicators fail alone: by family, why it has, and when that was heard of.
  struct Failed {
    Error error;
    Time when;
  };
  std::map<std::size_t, Failed> failed = {};
};
/// Of one rank, in the order of the splits; none where the split failed.
using Families = std::vector<std::optional<Communicator>>;

/// All ranks of one scenario.
class Job {
 public:
  Job(const Scenario& scenario, bool trace)
      : scenario_(scenario),
        simulator_(scenario.seed, scenario.ranks, trace),
        coordinator_(simulator_, scenario.ranks, scenario.processes),
        network_(simulator_, scenario.ranks),
        outcomes_(scenario.ranks),
        contexts_(scenario.ranks) {}

  Verdict run();

 private:
  void rank_task(int rank);
  void live(int rank);
  void take_step(int rank, std::size_t index, Families& families);
  Call own_call(int rank, std::size_t index, std::size_t at, const Communicator& communicator);
  void make_calls(int rank, std::size_t index, Families& families);
  bool goes_on(int rank, std::size_t family, const Families& families) const;
  void note_failure(int rank, std::size_t family, const Error& error);
  void check(int rank, std::size_t index, std::unique_ptr<Payload> payload, bool failed);
  Work post(int rank, Communicator& communicator, const Call& call, Payload& payload,
            std::vector<Work>& more);
  void arm_fault(int rank, int step);
  void strike();
  void lose_core(int rank, int times);
  bool misses(int rank, std::size_t index);
  std::string judge() const;
  std::string judge_rank(int rank) const;
  std::string judge_error(int rank, const Error& error, Time when) const;

  const Scenario& scenario_;
  Simulator simulator_;
  VirtualCoordinator coordinator_;
  Network network_;
  std::vector<Outcome> outcomes_;
  std::vector<std::shared_ptr<comm::Context>> contexts_;  ///< In one process: outlive every rank.
  std::vector<std::unique_ptr<Payload>> reused_;          ///< Of calls that failed.
  std::optional<Time> struck_;
};

void Job::arm_fault(int rank, int step) {
  const Fault& fault = scenario_.fault;
  using Kind = Fault::Kind;
  const bool timed =
      fault.kind == Kind::kill || fault.kind == Kind::pause || fault.kind == Kind::stop;
  if (timed && fault.rank == rank && fault.step == step) {
    simulator_.after_points(rank, fault.points, [this] { strike(); });
  }
}

void Job::strike() {
  const Fault& fault = scenario_.fault;
  struck_ = simulator_.now();
  simulator_.excuse_sleepers();
  if (fault.kind == Fault::Kind::kill) {
    simulator_.kill(fault.rank);
    network_.lose(fault.rank);
    coordinator_.process_ended(fault.rank);
    return;
  }
  simulator_.stop(fault.rank);
  simulator_.at(simulator_.now() + fault.duration, [this] {
    simulator_.go_on(scenario_.fault.rank);
    network_.go_on();
  });
}

/// The rank stands still for a while, so many times, as one of many on few cores does.
void Job::lose_core(int rank, int times) {
  simulator_.after_points(rank, simulator_.random().any_scale(2'000), [this, rank, times] {
    simulator_.excuse_sleepers();
    simulator_.stop(rank);
    const nanoseconds away(simulator_.random().below(most_away.count()));
    simulator_.at(simulator_.now() + away, [this, rank, times] {
      simulator_.go_on(rank);
      network_.go_on();
      if (times > 1) {
        lose_core(rank, times - 1);
      }
    });
  });
}

void Job::rank_task(int rank) {
  Outcome& outcome = outcomes_[rank];
  try {
    live(rank);
  } catch (const Error& error) {
    outcome.error = error;
    simulator_.trace(
        rank, text("ends with ", name(error.code()), ", rank ", error.rank(), ": ", error.what()));
  } catch (const std::exception& error) {
    outcome.complaint = text("threw what is no Error: ", error.what());
  }
  outcome.ended = true;
  outcome.when = simulator_.now();
  if (scenario_.processes) {
    coordinator_.process_ended(rank);
  }
}

void Job::live(int rank) {
  Config config;
  config.rank = rank;
  config.size = scenario_.ranks;
  config.host = scenario_.hosts;
  config.log_level = "off";
  config.staging_bytes = scenario_.staging_bytes;
  config.timeout = scenario_.timeout;
  config.cross_memory = scenario_.seed % 3 != 0;  // otherwise all private memory is staged
  comm::Environment environment{
      .rendezvous = coordinator_.member(rank),
      .wait_policy = std::make_unique<VirtualWaitPolicy>(
          simulator_, rank, [this, rank] { return network_.has_news(rank); }),
      .wires = [this](const Config&, int from, int) { return network_.open(from); },
      .progress = {.may_start_thread = false, .least_task = 256},
      .keep = scenario_.processes ? nullptr : &contexts_[rank]};
  arm_fault(rank, -1);
  auto context =
      comm::Context::join(config, std::move(environment), sizeof(collectives::ControlBlock));
  simulator_.trace(rank, "has joined");
  Families families;
  auto rules = std::make_shared<const collectives::Rules>(collectives::rules_of(context->config()));
  families.emplace_back(Communicator::Impl::world(std::move(context), std::move(rules)));
  for (std::size_t index = 0; index < scenario_.steps.size(); ++index) {
    outcomes_[rank].step = static_cast<int>(index);
    arm_fault(rank, static_cast<int>(index));
    if (scenario_.busy && scenario_.first_burst == index) {
      lose_core(rank, most_losses);
    }
    if (misses(rank, index)) {
      families[scenario_.fault.family]->abort("the simulation says so");
    }
    take_step(rank, index, families);
  }
}

/// The rank does something else than the step; true: it is to abort.
bool Job::misses(int rank, std::size_t index) {
  const Fault& fault = scenario_.fault;
  if (fault.rank != rank || fault.step != static_cast<int>(index)) {
    return false;
  }
  if (fault.kind == Fault::Kind::absent) {
    struck_ = simulator_.now();
    simulator_.trace(rank, "stays away");
    const Time back = simulator_.now() + scenario_.timeout + 6s;
    simulator_.at(back, [] {});
    simulator_.wait_for([this, back] { return simulator_.now() >= back; });
  }
  if (fault.kind == Fault::Kind::abort) {
    struck_ = simulator_.now();
    simulator_.trace(rank, "aborts");
    return true;
  }
  return false;
}

void Job::take_step(int rank, std::size_t index, Families& families) {
  const Step& step = scenario_.steps[index];
  if (!step.splits) {
    make_calls(rank, index, families);
    return;
  }
  simulator_.trace(rank, text("step ", index, ": split of family ", step.parent));
  const int color = static_cast<int>(step.colors >> rank & 1);
  families.emplace_back();
  if (!goes_on(rank, step.parent, families)) {
    return;
  }
  try {
    families.back() = families[step.parent]->split(
        color, 0, "", scenario_.alone ? Failing::alone : Failing::together);
  } catch (const Error& error) {
    note_failure(rank, step.parent, error);
  }
}

bool Job::goes_on(int rank, std::size_t family, const Families& families) const {
  return families[family] && !outcomes_[rank].failed.contains(family);
}

/// A family has failed; the rank goes on with the others if they fail alone.
void Job::note_failure(int rank, std::size_t family, const Error& error) {
  if (!scenario_.alone) {
    throw Error(error);
  }
  simulator_.trace(rank, text("family ", family, " has failed: ", error.what()));
  outcomes_[rank].failed.try_emplace(family, Outcome::Failed{error, simulator_.now()});
}

/// The step's call as this rank makes it.
Call Job::own_call(int rank, std::size_t index, std::size_t at, const Communicator& communicator) {
  const Fault& fault = scenario_.fault;
  Call call = scenario_.steps[index].calls[at];
  if (fault.kind == Fault::Kind::differ && fault.rank == rank &&
      fault.step == static_cast<int>(index) && differing_call(scenario_) == at &&
      communicator.size() > 1) {
    struck_ = simulator_.now();
    call = other_call(scenario_, call);
  }
  return fitted(call, communicator.size());
}

void Job::make_calls(int rank, std::size_t index, Families& families) {
  const Step& step = scenario_.steps[index];
  std::vector<std::unique_ptr<Payload>> payloads(step.calls.size());  // null: not called
  std::vector<Work> works, more;
  std::vector<std::optional<Error>> errors(step.calls.size());
  bool stops = false;
  const auto wait = [&](Work& work, std::size_t at) {
    try {
      work.wait();
    } catch (const Error& error) {
      errors[at] = errors[at] ? errors[at] : error;
      stops |= !scenario_.alone;
    }
  };
  std::vector<std::size_t> more_of;  // the calls that they belong to
  for (std::size_t at = 0; at < step.calls.size() && !stops; ++at) {
    works.emplace_back();
    if (!goes_on(rank, step.calls[at].family, families)) {
      continue;
    }
    Communicator& communicator = *families[step.calls[at].family];
    const Call call = own_call(rank, index, at, communicator);
    payloads[at] = std::make_unique<Payload>(call, scenario_.seed * 4'096 + index * 512 + at,
                                             members(scenario_.families[call.family], rank), rank);
    simulator_.trace(rank, text("step ", index, ": ", words(call), " on ", communicator.name()));
    try {
      works.back() = post(rank, communicator, call, *payloads[at], more);
    } catch (const Error& error) {
      errors[at] = error;
      stops |= !scenario_.alone;
    }
    more_of.resize(more.size(), at);
    if (at >= step.most_in_flight) {
      wait(works[at - step.most_in_flight], at - step.most_in_flight);
    }
  }
  for (const std::size_t at : step.waits) {
    if (at < works.size()) {
      wait(works[at], at);
    }
  }
  for (std::size_t one = 0; one < more.size(); ++one) {
    wait(more[one], more_of[one]);
  }
  simulator_.trace(rank, text("step ", index, stops ? " failed" : " is done"));
  for (std::size_t at = 0; at < payloads.size(); ++at) {
    if (payloads[at]) {
      check(rank, index, std::move(payloads[at]), stops || errors[at].has_value());
    }
  }
  for (std::size_t at = 0; at < errors.size(); ++at) {
    if (errors[at]) {
      note_failure(rank, step.calls[at].family, *errors[at]);
    }
  }
}

void Job::check(int rank, std::size_t index, std::unique_ptr<Payload> payload, bool failed) {
  const std::string wrong = failed ? "" : payload->complaint();
  if (!wrong.empty()) {
    simulator_.violation(text("rank ", rank, " got wrong bytes in step ", index, ": ", wrong));
  }
  payload->refill();  // by its caller, whose buffers they are: no peer reads them any more
  if (failed) {
    reused_.push_back(std::move(payload));
  }
}

Work Job::post(int rank, Communicator& communicator, const Call& call, Payload& payload,
               std::vector<Work>& more) {
  const Options options{
      .timeout = {},
      .blocking = scenario_.steps[outcomes_[rank].step].blocking && call.what != What::pass};
  const ConstElements in = payload.input();
  const Elements out = payload.output();
  switch (call.what) {
    case What::all_reduce:
      return communicator.all_reduce(in, out, call.op, options);
    case What::all_gather:
      return communicator.all_gather(in, out, options);
    case What::reduce_scatter:
      return communicator.reduce_scatter(in, out, call.op, options);
    case What::broadcast:
      return communicator.broadcast(out, call.root, options);
    case What::all_to_all:
      return communicator.all_to_all(in, out, options);
    case What::barrier:
      communicator.barrier(options);
      return Work();
    case What::pass: {
      const int size = communicator.size(), me = communicator.rank();
      more.push_back(communicator.send(in, (me + call.shift) % size, call.tag, options));
      return communicator.recv(out, (me + size - call.shift) % size, call.tag, options);
    }
    case What::reduce:
      return communicator.reduce(in, out, call.root, call.op, options);
    case What::gather:
      return communicator.gather(in, out, call.root, options);
    case What::scatter:
      return communicator.scatter(in, out, call.root, options);
    case What::all_gatherv:
      return communicator.all_gatherv(
          in, out, block_counts(call, static_cast<std::size_t>(communicator.size())), options);
  }
  return Work();
}

Verdict Job::run() {
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    simulator_.spawn(rank, [this, rank] { rank_task(rank); });
  }
  const Time begin = simulator_.now();
  const bool over = simulator_.run(begin + longest_run);
  Verdict verdict;
  verdict.complaint = simulator_.violations();
  if (verdict.complaint.empty() && !over) {
    verdict.complaint = "hangs:";
    for (int rank = 0; rank < scenario_.ranks; ++rank) {
      if (!outcomes_[rank].ended && !simulator_.dead(rank)) {
        verdict.complaint += text(" rank ", rank, " in step ", outcomes_[rank].step);
      }
    }
  }
  if (verdict.complaint.empty()) {
    verdict.complaint = judge();
  }
  verdict.digest = simulator_.digest();
  verdict.turns = simulator_.turns();
  verdict.virtual_seconds = 1e-9 * static_cast<double>((simulator_.now() - begin).count());
  verdict.fault_struck = struck_.has_value();
  return verdict;
}

std::string Job::judge() const {
  for (const auto& payload : reused_) {
    if (!payload->untouched()) {
      return "a buffer changed after its call had failed and its caller had reused it";
    }
  }
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    const Outcome& outcome = outcomes_[rank];
    if (simulator_.dead(rank)) {
      continue;
    }
    std::string complaint = outcome.complaint;
    if (complaint.empty()) {
      complaint = judge_rank(rank);
    }
    if (complaint.empty() && !outcome.error && struck_ && !scenario_.alone &&
        scenario_.fault.kind == Fault::Kind::differ) {
      complaint = "ended as if all ranks had called the same";
    }
    if (!complaint.empty()) {
      return text("rank ", rank, " in step ", outcome.step, ": ", complaint,
                  outcome.error ? text(" [", name(outcome.error->code()), ", rank ",
                                       outcome.error->rank(), ": ", outcome.error->what(), "]")
                                : "");
    }
  }
  return {};
}

std::string Job::judge_rank(int rank) const {
  const Outcome& outcome = outcomes_[rank];
  if (outcome.error) {
    return judge_error(rank, *outcome.error, outcome.when);
  }
  for (const auto& [family, failed] : outcome.failed) {
    const std::string complaint = may_fail(scenario_, rank, family)
                                      ? judge_error(rank, failed.error, failed.when)
                                      : "it has failed, though the fault is none of its";
    if (!complaint.empty()) {
      return text("family ", family, ": ", complaint, " [", name(failed.error.code()), ", rank ",
                  failed.error.rank(), ": ", failed.error.what(), "]");
    }
  }
  return {};
}

std::string Job::judge_error(int rank, const Error& error, Time when) const {
  using Kind = Fault::Kind;
  const Fault& fault = scenario_.fault;
  const std::string what = error.what();
  if (!struck_ || fault.kind == Kind::none || fault.kind == Kind::pause) {
    return "an error though nothing had gone wrong";
  }
  auto bound = *struck_ + error_bound;
  if (fault.kind == Kind::absent || fault.kind == Kind::stop) {
    bound += scenario_.timeout;
  }
  if (fault.kind == Kind::stop || fault.kind == Kind::absent) {
    bound += rank == fault.rank || fault.rank == 0 || !scenario_.processes ? 12s : 0s;
  }
  if (when > bound) {
    return "the error came late";
  }
  const std::string named = text("rank ", fault.rank);
  // A message that fails names its peer at once, before the coordinator says why.
  const bool named_by_a_message =
      error.code() == ErrorCode::unavailable && error.rank() == fault.rank;
  switch (fault.kind) {
    case Kind::kill:
      return named_by_a_message ||
                     (error.code() == ErrorCode::lost_peer && error.rank() == fault.rank)
                 ? ""
                 : text("not the loss of ", named);
    case Kind::abort:
      return named_by_a_message ||
                     (error.code() == ErrorCode::aborted && error.rank() == fault.rank)
                 ? ""
                 : text("not the abort of ", named);
    case Kind::differ: {
      const Call call = scenario_.steps[fault.step].calls[differing_call(scenario_)];
      const Call other = other_call(scenario_, call);
      const bool both = what.find(words(call)) != std::string::npos &&
                        what.find(words(other)) != std::string::npos;
      return error.code() == ErrorCode::mismatch && both ? "" : "not the mismatch";
    }
    case Kind::stop:
    case Kind::absent:
      // Who is named may be late itself, for the same reason: a receive knows only its sender.
      return error.code() == ErrorCode::timeout || error.code() == ErrorCode::lost_peer
                 ? ""
                 : text("not the lateness of ", named);
    case Kind::none:
    case Kind::pause:
      break;
  }
  return {};
}

}  // namespace

Verdict run_scenario(const Scenario& scenario, bool trace) {
  // Never destroyed: killed ranks' stacks refer to them, and so do their contexts.
  static auto& jobs = *new std::vector<Job*>();
  jobs.push_back(new Job(scenario, trace));
  return jobs.back()->run();
}

}  // namespace sprat::simulation
