// Plans of one communicator, made once for each problem.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "collectives/engine/eager_plan.hpp"
#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/planner.hpp"
#include "collectives/plan/signature.hpp"
#include "collectives/plan/tuning.hpp"

namespace sprat::collectives {

/// A chosen algorithm and its plan.
struct Planned {
  const Algorithm* algorithm = nullptr;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const EagerPlan> eager;  ///< Null unless it fits.
  /// For when no rank calls in place, if that makes a difference.
  std::shared_ptr<const Planned> out_of_place = nullptr;
};

/// What `algorithm` plans for `problem`.
Planned planned(const Problem& problem, const Algorithm& algorithm);

/// Not thread-safe: its executor's token is held. What it returns is shared, since an operation may
/// outlive its place in the cache; the reference is valid until the next call.
class PlanCache {
 public:
  explicit PlanCache(std::shared_ptr<const Rules> rules) : rules_(std::move(rules)) {}

  /// The plan of the whole problem, by the algorithm that the rules choose. Of plans for block
  /// counts of their own, the last is kept.
  const std::shared_ptr<const Planned>& of(const Problem& problem);
  /// The plan of `count` elements a block, by a given algorithm.
  const std::shared_ptr<const Planned>& of(const Problem& problem, const Algorithm& algorithm,
                                           std::size_t count);

 private:
  // Jobs repeat few problems; one that does not must not grow for ever.
  static constexpr std::size_t limit = 1024;
  struct Key {
    Signature shape;
    DType results;  ///< Of this rank: the shape of a reduce says nothing of the root's.
    const Algorithm* algorithm;  ///< Null: as the rules choose.
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  /// Null if `otherwise` is the choice then, too.
  std::shared_ptr<const Planned> if_apart(Problem problem, const Algorithm& otherwise);
  std::shared_ptr<const Rules> rules_;
  std::unordered_map<Key, std::shared_ptr<const Planned>, Hash> plans_;
  std::optional<Problem> last_uneven_;
  std::shared_ptr<const Planned> planned_uneven_;  ///< The plan of last_uneven_.
  Key last_key_{};
  /// The plan of last_key_: the same call again costs no hashing.
  const std::shared_ptr<const Planned>* last_ = nullptr;
};

}  // namespace sprat::collectives
