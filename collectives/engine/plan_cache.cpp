#include "collectives/engine/plan_cache.hpp"

#include "collectives/engine/control_block.hpp"

namespace sprat::collectives {
namespace {

[[gnu::hot]] bool are_equal(const BlockCounts* a, const BlockCounts* b) {
  if (a == b || a == nullptr || b == nullptr) {
    return a == b;
  }
  bool equal = a->blocks() == b->blocks();
  for (int block = 0; equal && block < a->blocks(); ++block) {
    equal = a->count(block) == b->count(block);
  }
  return equal;
}

/// Of one communicator: what a plan depends on is the same, counts and all.
bool are_planned_alike(const Problem& a, const Problem& b) {
  return a.collective == b.collective && a.count == b.count && a.input == b.input &&
         a.output == b.output && a.op.op() == b.op.op() && a.root == b.root &&
         a.out_of_place == b.out_of_place && are_equal(a.counts.get(), b.counts.get()) &&
         are_equal(a.out_counts.get(), b.out_counts.get());
}

}  // namespace

Planned planned(const Problem& problem, const Algorithm& algorithm) {
  auto plan = std::make_shared<const Plan>(make_plan(problem, algorithm));
  auto eager = std::make_shared<const EagerPlan>(eager_plan_of(problem, *plan, Slot::inline_bytes));
  return {.algorithm = &algorithm,
          .plan = std::move(plan),
          .eager = eager->fits ? std::move(eager) : nullptr};
}

std::size_t PlanCache::Hash::operator()(const Key& key) const {
  return digest(key.shape) ^ static_cast<std::size_t>(key.results) ^
         (reinterpret_cast<std::uintptr_t>(key.algorithm) >> 4);
}

std::shared_ptr<const Planned> PlanCache::if_apart(Problem problem, const Algorithm& otherwise) {
  problem.out_of_place = problem.grouping->hosts() == 1;
  const Algorithm& algorithm = choose(problem, *rules_);
  return &algorithm == &otherwise ? nullptr : of(problem, algorithm, problem.count);
}

[[gnu::hot]] const std::shared_ptr<const Planned>& PlanCache::of(const Problem& problem) {
  if (problem.counts || exchanges(problem.collective)) {
    if (!last_uneven_ || !are_planned_alike(problem, *last_uneven_)) {
      last_uneven_.reset();  // should planning fail
      planned_uneven_ = std::make_shared<const Planned>(planned(problem, choose(problem, *rules_)));
      last_uneven_ = problem;
    }
    return planned_uneven_;
  }
  const Key key{shape_of(problem), problem.output, nullptr};
  if (last_ != nullptr && last_key_ == key) {
    return *last_;
  }
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    Problem stated = problem;
    if (only_meets(problem)) {
      stated.collective = Collective::barrier;
    }
    const Algorithm& algorithm = choose(stated, *rules_);
    Planned planned = *of(stated, algorithm, problem.count);
    planned.out_of_place = if_apart(stated, algorithm);
    found = plans_.emplace(key, std::make_shared<const Planned>(std::move(planned))).first;
  }
  last_key_ = key;
  last_ = &found->second;
  return *last_;
}

[[gnu::hot]] const std::shared_ptr<const Planned>& PlanCache::of(const Problem& problem,
                                                                 const Algorithm& algorithm,
                                                                 std::size_t count) {
  Problem part = problem;
  part.count = count;
  const Key key{shape_of(part), part.output, &algorithm};
  const auto found = plans_.find(key);
  if (found != plans_.end()) {
    return found->second;
  }
  if (plans_.size() >= limit) {
    plans_.clear();
    last_ = nullptr;
  }
  return plans_.emplace(key, std::make_shared<const Planned>(planned(part, algorithm)))
      .first->second;
}

}  // namespace sprat::collectives
