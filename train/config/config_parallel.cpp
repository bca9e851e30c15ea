// The section parallel, by our names and by those of SageMaker's model parallelism library.
#include <cmath>
#include <optional>

#include "train/config/config_check.hpp"

namespace sprat::train {
namespace {

/// SMP v1's values for what sharded_data_parallel_degree leaves unsaid.
constexpr double smp_bucket = 5e8, smp_persistence = 1e6, smp_live = 1e9, smp_clipping = 1.0;

/// A key that has a name of ours, or only SMP's.
struct Named {
  const char* ours;
  const char* smp;
};

/// The number under either name; refuses two that differ. Whole numbers may be written as 5e8.
std::optional<double> read_either(JsonSection& section, Named key) {
  std::optional<double> value;
  for (const char* name : {key.ours, key.smp}) {
    double one = 0;
    const bool given = section.has(name);
    section.read(name, one);
    if (!given) {
      continue;
    }
    check(one >= 0 && one <= 0x1p53 && std::floor(one) == one,
          "parallel.{} is {}; it is a whole number, 0 or more", name, one);
    check(!value || *value == one,
          "parallel.{} is {} and parallel.{} is {}, two names of one thing", key.ours, *value,
          key.smp, one);
    value = one;
  }
  return value;
}

void read_count(JsonSection& section, Named key, std::size_t& count) {
  if (const auto value = read_either(section, key)) {
    count = static_cast<std::size_t>(*value);
  }
}

void read_degree(JsonSection& section, FsdpOptions& sharding) {
  section.read("hybrid_shard_degree", sharding.hybrid_shard_degree);
  check_at_least("parallel.hybrid_shard_degree", sharding.hybrid_shard_degree, 0);
  int degree = 1;
  section.read("sharded_data_parallel_degree", degree);
  if (!section.has("sharded_data_parallel_degree")) {
    return;
  }
  check_at_least("parallel.sharded_data_parallel_degree", degree, 1);
  check(
      !section.has("hybrid_shard_degree") || sharding.hybrid_shard_degree == degree,
      "parallel.hybrid_shard_degree is {} and parallel.sharded_data_parallel_degree is {}; SMP v2 "
      "calls by the first name what v1 called by the second: give one",
      sharding.hybrid_shard_degree, degree);
  sharding.hybrid_shard_degree = degree;
  sharding.reduce_bucket_elements = static_cast<std::size_t>(smp_bucket);
  sharding.persistence_threshold = static_cast<std::size_t>(smp_persistence);
  sharding.max_live_elements = static_cast<std::size_t>(smp_live);
}

/// SMP keeps under sharding what is train.clip_norm here.
void read_clipping(const nlohmann::json& root, JsonSection& section, FsdpOptions& sharding) {
  const bool given = section.has("sdp_gradient_clipping");
  double limit = smp_clipping;
  section.read("sdp_gradient_clipping", limit);
  if (!given && !section.has("sharded_data_parallel_degree")) {
    return;
  }
  check(limit > 0, "parallel.sdp_gradient_clipping is {}; it is above 0", limit);
  JsonSection train(root, "train");
  if (train.has("clip_norm")) {
    double ours = 0;
    train.read("clip_norm", ours);
    check(!given || limit == ours,
          "train.clip_norm is {} and parallel.sdp_gradient_clipping is {}, two names of one thing",
          ours, limit);
    return;
  }
  sharding.clip_norm = static_cast<float>(limit);
}

}  // namespace

void read_parallel(const nlohmann::json& root, FsdpOptions& sharding) {
  JsonSection section(root, "parallel");
  section.read("strategy", sharding.strategy);
  read_degree(section, sharding);
  section.read("prefetch_units", sharding.prefetch_units);
  section.read("reductions_in_flight", sharding.reductions_in_flight);
  read_count(section, {"max_live_elements", "sdp_max_live_parameters"}, sharding.max_live_elements);
  read_count(section, {"reduce_bucket_elements", "sdp_reduce_bucket_size"},
             sharding.reduce_bucket_elements);
  read_count(section, {"persistence_threshold", "sdp_param_persistence_threshold"},
             sharding.persistence_threshold);
  bool hierarchical = true;  // either is well: all-gathers choose their levels by the topology
  section.read("sdp_hierarchical_allgather", hierarchical);
  section.read("state_tier", sharding.state_tier);
  section.read("shard_tier", sharding.shard_tier);
  read_clipping(root, section, sharding);
  section.end();
  check_at_least("parallel.prefetch_units", sharding.prefetch_units, 0);
  check_at_least("parallel.reductions_in_flight", sharding.reductions_in_flight, 1);
}

}  // namespace sprat::train
