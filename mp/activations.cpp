// Storages are followed through the program: where they are saved and used decides what stays, and
// a walk over the steps asks for the others, in the order of their use, as far ahead as is allowed.
#include "mp/activations.hpp"

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>

#include "comm/base/check.hpp"
#include "mp/actions.hpp"

namespace sprat {

int default_horizon(HorizonUnit unit) noexcept { return unit == HorizonUnit::tensors ? 2 : 4; }

}  // namespace sprat

namespace sprat::mp {
namespace {

constexpr int no_step = -1;

std::size_t tape_index(int number) { return static_cast<std::size_t>(number); }

/// Where a tape is made and used.
struct TapeUses {
  int made = no_step, first = no_step, last = no_step;
};

std::vector<TapeUses> tape_uses_of(const ActivationProgram& program) {
  std::vector<TapeUses> uses(program.tapes.size());
  int task = 0;
  for (int step = 0; step < static_cast<int>(program.steps.size()); ++step) {
    const TapeStep& one = program.steps[tape_index(step)];
    require(one.tape >= no_tape && one.tape < static_cast<int>(uses.size()), "step ", step,
            " names tape ", one.tape, "; there are ", uses.size());
    require(one.task >= task, "step ", step, " belongs to task ", one.task, ", after one of task ",
            task, "; tasks are numbered in order");
    task = one.task;
    if (one.tape == no_tape) {
      continue;
    }
    TapeUses& tape = uses[tape_index(one.tape)];
    const Tape& named = program.tapes[tape_index(one.tape)];
    if (one.pass == TapePass::forward) {
      require(tape.made == no_step, "steps ", tape.made, " and ", step,
              " both make the tape of layer ", named.layer, ", micro-batch ", named.microbatch);
      tape.made = step;
      continue;
    }
    require(tape.made != no_step, "step ", step, " uses the tape of layer ", named.layer,
            ", micro-batch ", named.microbatch, " before a forward has made it");
    tape.first = tape.first == no_step ? step : tape.first;
    tape.last = step;
  }
  for (std::size_t tape = 0; tape < uses.size(); ++tape) {
    require(uses[tape].first != no_step, "no step uses the tape of layer ",
            program.tapes[tape].layer, ", micro-batch ", program.tapes[tape].microbatch,
            "; leave out what no backward needs");
  }
  return uses;
}

/// Tapes that come back before a trip would be worth it.
std::vector<bool> soon(const ActivationProgram& program, const std::vector<TapeUses>& uses,
                       const OffloadOptions& options) {
  std::vector<int> forwards = {0}, steps = {0};  // of tapes, before a step
  for (const TapeStep& step : program.steps) {
    const int counts = step.tape == no_tape ? 0 : 1;
    steps.push_back(steps.back() + counts);
    forwards.push_back(forwards.back() + (step.pass == TapePass::forward ? counts : 0));
  }
  std::vector<bool> result;
  for (const TapeUses& tape : uses) {
    const int between = steps[tape_index(tape.first)] - steps[tape_index(tape.made + 1)];
    const int made = forwards[tape_index(tape.first)] - forwards[tape_index(tape.made + 1)];
    const int ahead =
        program.steps[tape_index(tape.first)].task - program.steps[tape_index(tape.made)].task;
    // A load that would begin in the task that made the tape, or before, undoes its store at once.
    result.push_back(std::max(made, between - made) < options.keep_last ||
                     (options.unit == HorizonUnit::tasks && ahead <= options.horizon));
  }
  return result;
}

std::vector<StoragePlan> place_storages(const ActivationProgram& program,
                                        const std::vector<TapeUses>& uses,
                                        const OffloadOptions& options) {
  const std::vector<bool> used_soon = soon(program, uses, options);
  std::vector<StoragePlan> storages(program.storage_bytes.size());
  std::vector<int> first_use(storages.size(), no_step);
  for (std::size_t tape = 0; tape < uses.size(); ++tape) {
    for (const int number : program.tapes[tape].storages) {
      require(number >= 0 && tape_index(number) < storages.size(), "the tape of layer ",
              program.tapes[tape].layer, " names storage ", number, "; there are ",
              storages.size());
      StoragePlan& one = storages[tape_index(number)];
      int& first = first_use[tape_index(number)];
      one.made = first == no_step ? uses[tape].made : std::min(one.made, uses[tape].made);
      first = first == no_step ? uses[tape].first : std::min(first, uses[tape].first);
      one.stored = std::max(one.stored, uses[tape].made);
      one.dropped = std::max(one.dropped, uses[tape].last);
      if (used_soon[tape]) {
        one.placement = StoragePlacement::used_soon;
      }
    }
  }
  for (std::size_t number = 0; number < storages.size(); ++number) {
    StoragePlan& one = storages[number];
    require(first_use[number] != no_step, "no tape names storage ", number);
    // Where a view is used before another tape saves it, it never has time to leave.
    if (first_use[number] <= one.stored) {
      one.placement = StoragePlacement::used_soon;
    }
    if (program.storage_bytes[number] < options.min_bytes) {
      one.placement = StoragePlacement::too_small;
    }
    if (one.placement != StoragePlacement::offloaded) {
      one.stored = no_step;
    }
  }
  return storages;
}

/// What is loaded for one tape; what tapes share is loaded for the first that uses it.
struct TapeLoads {
  int use = 0;       // the step that needs it
  int ready = 0;     // not ahead of this step: all of it has begun to be stored
  int released = 0;  // after this step all of it is dropped
  std::size_t bytes = 0;
  std::vector<int> storages;
};

std::vector<TapeLoads> loads_in_order(const ActivationProgram& program,
                                      const std::vector<TapeUses>& uses,
                                      const std::vector<StoragePlan>& storages) {
  std::vector<TapeLoads> loads;
  std::vector<bool> claimed(storages.size());
  for (int step = 0; step < static_cast<int>(program.steps.size()); ++step) {
    const TapeStep& one = program.steps[tape_index(step)];
    if (one.pass == TapePass::forward || one.tape == no_tape ||
        uses[tape_index(one.tape)].first != step) {
      continue;
    }
    TapeLoads tape{.use = step, .storages = {}};
    for (const int number : program.tapes[tape_index(one.tape)].storages) {
      const StoragePlan& storage = storages[tape_index(number)];
      if (storage.placement == StoragePlacement::offloaded && !claimed[tape_index(number)]) {
        claimed[tape_index(number)] = true;
        tape.storages.push_back(number);
        tape.bytes += program.storage_bytes[tape_index(number)];
        tape.ready = std::max(tape.ready, storage.stored + 1);
        tape.released = std::max(tape.released, storage.dropped);
      }
    }
    if (!tape.storages.empty()) {
      loads.push_back(std::move(tape));
    }
  }
  return loads;
}

/// Walks the program: ahead of each step the next tapes are asked for while the horizon and memory
/// allow it, and what the step itself needs whatever they say.
class LoadWalk {
 public:
  LoadWalk(const ActivationProgram& program, const OffloadOptions& options,
           std::vector<TapeLoads> loads)
      : program_(program), options_(options), loads_(std::move(loads)) {}

  /// The tapes whose loads begin ahead of the step; called for every step in order.
  std::vector<TapeLoads> ahead_of(int step) {
    std::erase_if(loaded_, [&](const TapeLoads& tape) { return tape.released < step; });
    begun_ = begun_ || program_.steps[tape_index(step)].pass == TapePass::backward;
    std::vector<TapeLoads> begin;
    while (next_ < loads_.size() && may_begin(loads_[next_], step)) {
      loaded_.push_back(loads_[next_]);
      begin.push_back(loads_[next_++]);
    }
    return begin;
  }

 private:
  bool may_begin(const TapeLoads& tape, int step) const {
    if (tape.use == step) {
      return true;
    }
    std::size_t bytes = tape.bytes;
    for (const TapeLoads& other : loaded_) {
      bytes += other.bytes;
    }
    const int task = program_.steps[tape_index(step)].task;
    const bool within = options_.unit == HorizonUnit::tensors
                            ? begun_ && loaded_.size() < tape_index(options_.horizon)
                            : task >= program_.steps[tape_index(tape.use)].task - options_.horizon;
    return within && step >= tape.ready && bytes <= options_.max_loaded_bytes;
  }

  const ActivationProgram& program_;
  const OffloadOptions& options_;
  std::vector<TapeLoads> loads_;
  std::size_t next_ = 0;
  std::vector<TapeLoads> loaded_;
  bool begun_ = false;  // a backward has come
};

/// The one link of the model. Transfers are decided as late as their beginnings allow, since a step
/// that comes later may ask for a load that goes first.
class TransferLink {
 public:
  explicit TransferLink(const ActivationTimes& times)
      : times_(times), stored_(times.stores.size(), unknown), loaded_(stored_) {}

  void store(int storage, double now) { stores_.push_back({storage, now}); }
  /// After pass(now). False if the storage is still in memory: its store is given up, and the link
  /// is free for others.
  bool load(int storage, double now) {
    double& stored = stored_[tape_index(storage)];
    if (stored != unknown && stored <= now) {
      loads_.push_back({storage, now});
      return true;
    }
    if (stored == unknown) {
      std::erase_if(stores_, [&](const Transfer& one) { return one.storage == storage; });
    } else {
      free_ = now;
    }
    loaded_[tape_index(storage)] = now;
    return false;
  }
  /// Begins what begins before `now`.
  void pass(double now) {
    while (begin_next(now)) {
    }
  }
  /// When a load that was asked for has ended.
  double end_of_load(int storage) { return end_of(storage, loaded_); }
  /// When a store that was asked for has ended, or was given up.
  double end_of_store(int storage) {
    const double given_up = loaded_[tape_index(storage)];
    return given_up == unknown ? end_of(storage, stored_) : given_up;
  }

 private:
  static constexpr double unknown = -1, forever = 1e300;
  struct Transfer {
    int storage = 0;
    double asked = 0;
  };

  double end_of(int storage, const std::vector<double>& ends) {
    while (ends[tape_index(storage)] == unknown && begin_next(forever)) {
    }
    return ends[tape_index(storage)];
  }
  bool begin_next(double before) {
    const double load = loads_.empty() ? forever : std::max(free_, loads_.front().asked);
    const double store = stores_.empty() ? forever : std::max(free_, stores_.front().asked);
    if (std::min(load, store) >= before) {
      return false;
    }
    const bool loads = load <= store;
    std::deque<Transfer>& queue = loads ? loads_ : stores_;
    const int storage = queue.front().storage;
    queue.pop_front();
    free_ = loads ? load + times_.loads[tape_index(storage)]
                  : store + times_.stores[tape_index(storage)];
    (loads ? loaded_ : stored_)[tape_index(storage)] = free_;
    return true;
  }

  const ActivationTimes& times_;
  std::vector<double> stored_, loaded_;  // by storage, when that ended
  std::deque<Transfer> stores_, loads_;
  double free_ = 0;
};

/// Writes a rank's actions as steps of its layers.
class ProgramBuilder {
 public:
  ProgramBuilder(int microbatches, std::span<const StageLayers> stages)
      : microbatches_(microbatches),
        stages_(stages),
        made_(stages.size() * tape_index(microbatches)) {}

  void forward(int stage, int microbatch) {
    int layer = stages_[tape_index(stage)].first;
    for (const std::size_t bytes : stages_[tape_index(stage)].tape_bytes) {
      const int tape = static_cast<int>(program_.tapes.size());
      tapes_of(stage, microbatch).push_back(tape);
      program_.tapes.push_back({.layer = layer++, .microbatch = microbatch, .storages = {tape}});
      program_.storage_bytes.push_back(bytes);
      program_.steps.push_back({.pass = TapePass::forward, .tape = tape, .task = task_});
    }
  }
  void backward(int stage, int microbatch) {
    const std::vector<int>& tapes = tapes_of(stage, microbatch);
    for (auto tape = tapes.rbegin(); tape != tapes.rend(); ++tape) {
      program_.steps.push_back({.pass = TapePass::backward, .tape = *tape, .task = task_});
    }
  }
  void end_task() { ++task_; }
  ActivationProgram finish() { return std::move(program_); }

 private:
  std::vector<int>& tapes_of(int stage, int microbatch) {
    return made_[tape_index(stage * microbatches_ + microbatch)];
  }

  int microbatches_;
  std::span<const StageLayers> stages_;
  std::vector<std::vector<int>> made_;  // tapes of a stage's layers, by stage and micro-batch
  ActivationProgram program_;
  int task_ = 0;
};

void check_kept(const ActivationProgram& program) {
  for (const KeptMemory& kept : program.kept) {
    require(
        kept.first >= 0 && kept.first <= kept.last && tape_index(kept.last) < program.steps.size(),
        kept.name, " is kept from step ", kept.first, " to ", kept.last, "; the program has ",
        program.steps.size());
  }
}

}  // namespace

ActivationProgram activation_program(const Schedule& schedule, int rank,
                                     std::span<const StageLayers> stages) {
  require(rank >= 0 && rank < schedule.ranks(), "schedule ", schedule.name, " has ranks 0 to ",
          schedule.ranks() - 1, ", not ", rank);
  require(stages.size() == tape_index(schedule.stages()), "schedule ", schedule.name, " has ",
          schedule.stages(), " stages, but layers are told of ", stages.size());
  ProgramBuilder builder(schedule.microbatches, stages);
  for (const Action& action : schedule.actions[tape_index(rank)]) {
    if (!is_computation(action.op)) {
      continue;  // no task
    }
    for (const Action& part : parts_of(action)) {
      // A recomputation reads what the forward kept of its input, as a backward does.
      if (part.op == Op::forward) {
        builder.forward(part.stage, part.microbatch);
      } else {
        builder.backward(part.stage, part.microbatch);
      }
    }
    builder.end_task();
  }
  return builder.finish();
}

ActivationPlan plan_activations(const ActivationProgram& program, const OffloadOptions& options) {
  require(options.horizon >= 1, "a loading horizon is 1 or more, not ", options.horizon,
          "; what is in use counts, too");
  require(options.keep_last >= 0, "keep_last is 0 or more, not ", options.keep_last);
  check_kept(program);
  const std::vector<TapeUses> uses = tape_uses_of(program);
  ActivationPlan plan{.storages = place_storages(program, uses, options),
                      .loads = std::vector<std::vector<int>>(program.steps.size()),
                      .stores = std::vector<std::vector<int>>(program.steps.size()),
                      .drops = std::vector<std::vector<int>>(program.steps.size())};
  for (std::size_t number = 0; number < plan.storages.size(); ++number) {
    const StoragePlan& one = plan.storages[number];
    plan.drops[tape_index(one.dropped)].push_back(static_cast<int>(number));
    if (one.placement == StoragePlacement::offloaded) {
      plan.stores[tape_index(one.stored)].push_back(static_cast<int>(number));
      plan.offloaded_bytes += program.storage_bytes[number];
    }
  }
  LoadWalk walk(program, options, loads_in_order(program, uses, plan.storages));
  for (int step = 0; step < static_cast<int>(program.steps.size()); ++step) {
    for (const TapeLoads& tape : walk.ahead_of(step)) {
      for (const int number : tape.storages) {
        plan.storages[tape_index(number)].loaded = step;
        plan.loads[tape_index(step)].push_back(number);
      }
    }
  }
  return plan;
}

std::vector<memory::Buffer> activation_buffers(const ActivationProgram& program,
                                               const ActivationPlan& plan) {
  std::vector<memory::Buffer> buffers(plan.storages.size());
  for (const Tape& tape : program.tapes) {
    for (const int number : tape.storages) {
      memory::Buffer& buffer = buffers[tape_index(number)];
      if (!buffer.name.empty()) {
        continue;
      }
      const StoragePlan& one = plan.storages[tape_index(number)];
      const std::size_t end = tape_index(one.dropped + 1);
      buffer = {.name = text("tape of layer ", tape.layer, ", micro-batch ", tape.microbatch),
                .bytes = program.storage_bytes[tape_index(number)],
                .lives = {{tape_index(one.made), end}}};
      const int left = one.stored + 1 + store_steps;
      if (one.placement == StoragePlacement::offloaded && one.loaded > left) {
        buffer.lives = {{tape_index(one.made), tape_index(left)}, {tape_index(one.loaded), end}};
      }
    }
  }
  for (const KeptMemory& kept : program.kept) {
    buffers.push_back({.name = kept.name,
                       .bytes = kept.bytes,
                       .lives = {{tape_index(kept.first), tape_index(kept.last + 1)}}});
  }
  return buffers;
}

StallModel model_stall(const ActivationProgram& program, const ActivationPlan& plan,
                       const ActivationTimes& times) {
  require(times.steps.size() == program.steps.size() &&
              times.stores.size() == plan.storages.size() &&
              times.loads.size() == plan.storages.size(),
          "times of ", times.steps.size(), " steps, ", times.stores.size(), " stores and ",
          times.loads.size(), " loads are given; the program has ", program.steps.size(),
          " steps and ", plan.storages.size(), " storages");
  StallModel model;
  TransferLink link(times);
  for (std::size_t step = 0; step < program.steps.size(); ++step) {
    link.pass(model.total);
    for (const int storage : plan.loads[step]) {
      if (link.load(storage, model.total)) {
        model.load_busy += times.loads[tape_index(storage)];
      }
    }
    if (program.steps[step].pass == TapePass::backward && program.steps[step].tape != no_tape) {
      double ready = model.total;
      for (const int storage : program.tapes[tape_index(program.steps[step].tape)].storages) {
        if (plan.storages[tape_index(storage)].placement == StoragePlacement::offloaded) {
          ready = std::max(ready, link.end_of_load(storage));
        }
      }
      model.stall += ready - model.total;
      model.total = ready;
    }
    model.total += times.steps[step];
    // Those that must have left by now, as their memory goes to others.
    if (step >= store_steps) {
      double left = model.total;
      for (const int storage : plan.stores[step - store_steps]) {
        left = std::max(left, link.end_of_store(storage));
      }
      model.store_wait += left - model.total;
      model.total = left;
    }
    for (const int storage : plan.stores[step]) {
      link.store(storage, model.total);
    }
  }
  return model;
}

HorizonChoice choose_horizon(const ActivationProgram& program, const OffloadOptions& options,
                             const ActivationTimes& times) {
  require(options.horizon >= 1, "of horizons up to ", options.horizon,
          " none can be chosen; give 1 or more");
  std::vector<double> stalls;
  OffloadOptions tried = options;
  for (tried.horizon = 1; tried.horizon <= options.horizon; ++tried.horizon) {
    const StallModel model = model_stall(program, plan_activations(program, tried), times);
    // A load that goes ahead delays a store, so that a stall that is shorter may be a longer wait.
    stalls.push_back(model.stall + model.store_wait);
  }
  return chosen_of(std::move(stalls), std::reduce(times.steps.begin(), times.steps.end()));
}

}  // namespace sprat::mp

namespace sprat {

HorizonChoice chosen_of(std::vector<double> stalls, double steps) {
  require(!stalls.empty(), "of no horizon none can be chosen; give the stalls of one or more");
  const double least = *std::ranges::min_element(stalls);
  // Times of two passes differ by more than that, and what is saved by less is not worth memory.
  const double slack = (steps + least) / 100;
  const auto first =
      std::ranges::find_if(stalls, [&](double stall) { return stall <= least + slack; });
  const auto horizon = static_cast<int>(first - stalls.begin()) + 1;
  return {.horizon = horizon, .steps = steps, .stalls = std::move(stalls)};
}

}  // namespace sprat
