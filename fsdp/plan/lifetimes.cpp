// Lifetimes by rehearsal: the order of visits is played through, and what is alive is noted.
#include "fsdp/plan/lifetimes.hpp"

#include <algorithm>
#include <utility>

namespace sprat::fsdp {
namespace {

/// Plays evaluations and a step, as a caller drives the engine.
class Rehearsal {
 public:
  Rehearsal(const Visits& order, const GradientRules& rules)
      : order_(order),
        rules_(rules),
        reductions_(rules, order.elements),
        parameters_met_(order.units.size()),
        gradients_met_(order.units.size()),
        narrowed_met_(order.units.size()),
        sums_met_(order.units.size()),
        full_(order.units.size()),
        gradients_(full_),
        narrowed_(full_),
        sums_(full_) {}

  Lifetimes play() {
    const int units = static_cast<int>(order_.declared().units.size());
    restart();
    for (int step = 0; step < 2; ++step) {
      for (int evaluation = 0; evaluation < 2; ++evaluation) {
        visit_all(order_.declared().forward);
      }
      for (int micro_step = 0; micro_step < order_.declared().micro_steps; ++micro_step) {
        visit_all(order_.declared().forward);
        backward(micro_step);
      }
      for (int unit = order_.declared().visited(); unit < units; ++unit) {
        reduce(unit, false);
      }
      end(reductions_.end_all());
      std::fill(gradients_.begin(), gradients_.end(), false);
      restart();
    }
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
      full_[static_cast<std::size_t>(unit)] = false;
    }
  }
  void visit_all(const std::vector<int>& visits) {
    for (const int unit : visits) {
      visit(unit);
    }
  }

  void backward(int micro_step) {
    const std::vector<int>& visits = order_.declared().backward;
    const bool last_micro_step = micro_step + 1 == order_.declared().micro_steps;
    for (auto at = visits.begin(); at != visits.end(); ++at) {
      visit(*at);
      end(reductions_.end_through(*at));
      gradients_[static_cast<std::size_t>(*at)] = rules_.sharded;
      gradients_met_.meet(gradients_);
      const bool again = std::find(at + 1, visits.end(), *at) != visits.end();
      if (!again && (rules_.every_micro_step || last_micro_step)) {
        reduce(*at, rules_.every_micro_step && micro_step > 0);
      }
    }
  }
  void reduce(int unit, bool adds) {
    end(reductions_.begin(unit));
    const bool borrowed = rules_.sharded && unit < order_.declared().visited();
    narrowed_[static_cast<std::size_t>(unit)] = rules_.narrowed && !borrowed;
    sums_[static_cast<std::size_t>(unit)] = adds;
    narrowed_met_.meet(narrowed_);
    sums_met_.meet(sums_);
  }
  void end(const std::vector<int>& units) {
    for (const int unit : units) {
      for (std::vector<bool>* alive : {&gradients_, &narrowed_, &sums_}) {
        (*alive)[static_cast<std::size_t>(unit)] = false;
      }
    }
  }

  GatherSchedule order_;
  GradientRules rules_;
  ReductionOrder reductions_;
  memory::LifeRecord parameters_met_, gradients_met_, narrowed_met_, sums_met_;
  std::vector<bool> full_, gradients_, narrowed_, sums_;  // alive now, by unit
};

}  // namespace

ReductionOrder::ReductionOrder(const GradientRules& rules, std::vector<std::size_t> elements)
    : rules_(rules), elements_(std::move(elements)) {}

std::vector<int> ReductionOrder::begin(int unit) {
  const auto total = [&] {
    std::size_t sum = elements_[static_cast<std::size_t>(unit)];
    for (const int one : under_way_) {
      sum += elements_[static_cast<std::size_t>(one)];
    }
    return sum;
  };
  std::vector<int> ended;
  while (!under_way_.empty() &&
         (static_cast<int>(under_way_.size()) >= rules_.in_flight || total() > rules_.bucket)) {
    ended.push_back(under_way_.front());
    under_way_.erase(under_way_.begin());
  }
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
  Visits filled = order;
  filled.elements.resize(order.units.size(), 0);
  return Rehearsal(filled, rules).play();
}

}  // namespace sprat::fsdp
