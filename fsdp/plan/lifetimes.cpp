// Lifetimes by rehearsal: the order of visits is played through, and what is alive is noted.
#include "fsdp/plan/lifetimes.hpp"

#include <algorithm>
#include <utility>

#include "fsdp/plan/microbatch_tree.hpp"

namespace sprat::fsdp {
namespace {

/// Plays steps and evaluations, as a caller drives the engine.
class Rehearsal {
 public:
  Rehearsal(const Visits& order, const GradientRules& rules)
      : order_(order),
        rules_(rules),
        last_backwards_(last_backwards(order_.declared())),
        reductions_(rules, order_.declared().elements),
        second_sums_(reductions_),
        parameters_met_(order.units.size()),
        gradients_met_(order.units.size()),
        narrowed_met_(order.units.size()),
        sums_met_(order.units.size()),
        full_(order.units.size()),
        written_(full_),
        narrowed_(full_),
        sums_(full_),
        gradients_(full_),
        reduced_(order.units.size()) {
    begin_step();
  }

  /// What is full is said by the place in the declared visits that is taken for the likeliest. The
  /// first step meets all of its own. Evaluations may be taken for a step's beginning as long as
  /// its visits repeat theirs; so many of them meet whatever more could meet.
  Lifetimes play() {
    const Visits& declared = order_.declared();
    restart();
    step();
    restart();
    const std::size_t length = std::max<std::size_t>(declared.evaluation.size(), 1);
    for (std::size_t time = 0; time < declared.step.size() / length + 2; ++time) {
      for (const int unit : declared.evaluation) {
        visit(unit);
      }
    }
    step();
    restart();
    return {.parameters = parameters_met_.lives(),
            .gradients = gradients_met_.lives(),
            .narrowed = narrowed_met_.lives(),
            .sums = sums_met_.lives()};
  }

 private:
  void restart() {
    const std::vector<int> gathers = order_.restart();
    std::fill(full_.begin(), full_.end(), false);
    gather(gathers);
  }
  void gather(const std::vector<int>& units) {
    for (const int unit : units) {
      full_[static_cast<std::size_t>(unit)] = true;
    }
    parameters_met_.meet(full_);
  }
  void visit(int unit) {
    const VisitActions actions = order_.acquire(unit);
    for (const int dropped : actions.drop) {
      full_[static_cast<std::size_t>(dropped)] = false;
    }
    gather(actions.gather);
    if (order_.release(unit)) {
      const int freed = order_.declared().values_of[static_cast<std::size_t>(unit)];
      full_[static_cast<std::size_t>(freed)] = false;
    }
  }
  void step() {
    const Visits& declared = order_.declared();
    for (std::size_t at = 0; at < declared.step.size(); ++at) {
      const Visit& one = declared.step[at];
      visit(one.unit);
      if (adds_gradient(one.pass)) {
        write(one);
      }
      if (last_backwards_[at]) {
        // Here at the latest something was written, for which the sum before has ended.
        end(reductions_.end_through(one.unit));
        finish_microbatch(one);
        const int before = reduced_[static_cast<std::size_t>(one.unit)]++;
        if (rules_.every_micro_step || before + 1 == declared.micro_steps) {
          reduce(one.unit, rules_.every_micro_step && before > 0);
        }
      }
    }
    for (int unit = declared.visited(); unit < units(); ++unit) {
      reduce(unit, false);
    }
    end(reductions_.end_all());
    second_sums_.end_all();
    std::fill(narrowed_.begin(), narrowed_.end(), false);
    begin_step();
  }
  void begin_step() {
    const Visits& declared = order_.declared();
    std::fill(written_.begin(), written_.end(), false);
    std::fill(gradients_.begin(), gradients_.end(), false);
    std::fill(reduced_.begin(), reduced_.end(), 0);
    const int contributions = rules_.tree ? declared.micro_steps : 1;
    trees_.assign(declared.units.size(), MicrobatchTree(contributions));
    awaited_.assign(static_cast<std::size_t>(declared.micro_steps), declared.visited());
  }
  /// Any visit that adds a gradient may be one that writes; whoever writes first awaits the unit's
  /// last sum. This one may not, so that sum goes on here: more is met than is ever needed.
  void write(const Visit& visit) {
    written_[static_cast<std::size_t>(visit.unit)] = rules_.sharded;
    hold(visit.unit, visit.microbatch);
    for (int unit = order_.declared().visited(); rules_.tree && unit < units(); ++unit) {
      hold(unit, visit.microbatch);
    }
    gradients_met_.meet(gradients_);
  }
  /// The buffer in which a micro-batch's gradient is made. What a row keeps full is the first.
  void hold(int unit, int microbatch) {
    const int buffer = trees_[static_cast<std::size_t>(unit)].buffer(rules_.tree ? microbatch : 0);
    const bool borrowed = rules_.sharded && unit < order_.declared().visited();
    if (buffer > 0 || borrowed) {
      const auto number = static_cast<std::size_t>(gradient_buffer(unit, buffer, units()));
      gradients_.resize(std::max(gradients_.size(), number + 1));
      gradients_[number] = true;
    }
  }
  void finish_microbatch(const Visit& last) {
    if (!rules_.tree) {
      return;
    }
    add(last.unit, last.microbatch);
    if (--awaited_[static_cast<std::size_t>(last.microbatch)] == 0) {
      for (int unit = order_.declared().visited(); unit < units(); ++unit) {
        add(unit, last.microbatch);
      }
    }
  }
  void add(int unit, int microbatch) {
    for (const auto& addition : trees_[static_cast<std::size_t>(unit)].finish(microbatch)) {
      gradients_[static_cast<std::size_t>(gradient_buffer(unit, addition.from, units()))] = false;
    }
  }
  int units() const { return static_cast<int>(order_.declared().units.size()); }
  void reduce(int unit, bool adds) {
    end(reductions_.begin(unit));
    written_[static_cast<std::size_t>(unit)] = false;
    const bool borrowed = rules_.sharded && unit < order_.declared().visited();
    const bool encoded = rules_.encoded_first && unit < order_.declared().visited();
    narrowed_[static_cast<std::size_t>(unit)] = encoded || (rules_.narrowed && !borrowed);
    sums_[static_cast<std::size_t>(unit)] = adds;
    narrowed_met_.meet(narrowed_);
    sums_met_.meet(sums_);
  }
  void end(const std::vector<int>& units) {
    for (const int unit : units) {
      const auto at = static_cast<std::size_t>(unit);
      gradients_[at] = written_[at];
      narrowed_[at] = sums_[at] = false;
      if (rules_.encoded_second && unit < order_.declared().visited() &&
          reduced_[at] == order_.declared().micro_steps) {
        begin_second_sum(unit);
      }
    }
  }
  void begin_second_sum(int unit) {
    for (const int older : second_sums_.begin(unit)) {
      narrowed_[static_cast<std::size_t>(older)] = false;
    }
    narrowed_[static_cast<std::size_t>(unit)] = true;
    narrowed_met_.meet(narrowed_);
  }

  GatherSchedule order_;
  GradientRules rules_;
  std::vector<bool> last_backwards_;  // by visit of a step
  ReductionOrder reductions_, second_sums_;
  memory::LifeRecord parameters_met_, gradients_met_, narrowed_met_, sums_met_;
  std::vector<bool> full_, written_, narrowed_, sums_;  // now, by unit
  std::vector<bool> gradients_;                         // now, by gradient_buffer()
  std::vector<int> reduced_;                            // micro-batches of the step so far, by unit
  std::vector<MicrobatchTree> trees_;                   // by unit
  std::vector<int> awaited_;  // units that are not reduced yet, by micro-batch
};

}  // namespace

ReductionOrder::ReductionOrder(const GradientRules& rules, std::vector<std::size_t> elements)
    : rules_(rules), elements_(std::move(elements)) {}

std::vector<int> ReductionOrder::in_the_way_of(int unit) const {
  std::size_t total = elements_[static_cast<std::size_t>(unit)];
  for (const int one : under_way_) {
    total += elements_[static_cast<std::size_t>(one)];
  }
  std::size_t ended = 0;
  while (
      ended < under_way_.size() &&
      (static_cast<int>(under_way_.size() - ended) >= rules_.in_flight || total > rules_.bucket)) {
    total -= elements_[static_cast<std::size_t>(under_way_[ended++])];
  }
  return {under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(ended)};
}

std::vector<int> ReductionOrder::begin(int unit) {
  std::vector<int> ended = in_the_way_of(unit);
  under_way_.erase(under_way_.begin(),
                   under_way_.begin() + static_cast<std::ptrdiff_t>(ended.size()));
  under_way_.push_back(unit);
  return ended;
}

std::vector<int> ReductionOrder::end_through(int unit) {
  const auto found = std::find(under_way_.begin(), under_way_.end(), unit);
  if (found == under_way_.end()) {
    return {};
  }
  std::vector<int> ended(under_way_.begin(), found + 1);
  under_way_.erase(under_way_.begin(), found + 1);
  return ended;
}

std::vector<int> ReductionOrder::end_all() { return std::exchange(under_way_, {}); }

Lifetimes lifetimes(const Visits& order, const GradientRules& rules) {
  return Rehearsal(order, rules).play();
}

}  // namespace sprat::fsdp
