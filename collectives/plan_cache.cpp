#include "collectives/plan_cache.hpp"

namespace sprat::collectives {

std::size_t PlanCache::Hash::operator()(const Key& key) const {
  return digest(key.shape) ^ (reinterpret_cast<std::uintptr_t>(key.algorithm) >> 4);
}

const Planned& PlanCache::of(const Problem& problem) {
  if (problem.counts || exchanges(problem.collective)) {
    const Algorithm& algorithm = choose(problem, *rules_);
    unkept_ = {&algorithm, std::make_shared<const Plan>(make_plan(problem, algorithm))};
    return unkept_;
  }
  const Key key{shape_of(problem), nullptr};
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
    const Planned planned = of(stated, algorithm, problem.count);
    found = plans_.emplace(key, planned).first;
  }
  last_key_ = key;
  last_ = &found->second;
  return *last_;
}

const Planned& PlanCache::of(const Problem& problem, const Algorithm& algorithm,
                             std::size_t count) {
  Problem part = problem;
  part.count = count;
  const Key key{shape_of(part), &algorithm};
  const auto found = plans_.find(key);
  if (found != plans_.end()) {
    return found->second;
  }
  if (plans_.size() >= limit) {
    plans_.clear();
    last_ = nullptr;
  }
  auto plan = std::make_shared<const Plan>(make_plan(part, algorithm));
  return plans_.emplace(key, Planned{&algorithm, std::move(plan)}).first->second;
}

}  // namespace sprat::collectives
