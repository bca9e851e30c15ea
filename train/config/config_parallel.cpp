// The section parallel, by our names and by those of SageMaker's model parallelism library.
#include <cmath>
#include <optional>

#include "train/config/config_check.hpp"
#include "train/config/smp_name.hpp"

namespace sprat::train {
namespace {

namespace smp {
constexpr SmpName hybrid_shard_degree = {SmpVersion::v2, "hybrid_shard_degree"};
constexpr SmpName sharded_data_parallel_degree = {SmpVersion::v1, "sharded_data_parallel_degree"};
constexpr SmpName sdp_reduce_bucket_size = {SmpVersion::v1, "sdp_reduce_bucket_size"};
constexpr SmpName sdp_param_persistence_threshold = {SmpVersion::v1,
                                                     "sdp_param_persistence_threshold"};
constexpr SmpName sdp_max_live_parameters = {SmpVersion::v1, "sdp_max_live_parameters"};
constexpr SmpName sdp_hierarchical_allgather = {SmpVersion::v1, "sdp_hierarchical_allgather"};
constexpr SmpName sdp_gradient_clipping = {SmpVersion::v1, "sdp_gradient_clipping"};
}  // namespace smp

/// A key that has a name of ours besides SMP's.
struct Named {
  const char* ours;
  SmpName smp;
};

/// The number under either name; refuses two that differ. Whole numbers may be written as 5e8.
std::optional<double> read_either(JsonSection& section, Named key) {
  std::optional<double> value;
  for (const char* name : {key.ours, key.smp.name}) {
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
          key.smp.name, one);
    value = one;
  }
  return value;
}

void read_count(JsonSection& section, Named key, std::size_t& count) {
  if (const auto value = read_either(section, key)) {
    count = static_cast<std::size_t>(*value);
  }
}

void read_sharding_degree(JsonSection& section, FsdpOptions& sharding) {
  const char* const v1 = smp::sharded_data_parallel_degree.name;
  const char* const v2 = smp::hybrid_shard_degree.name;
  section.read(v2, sharding.hybrid_shard_degree);
  check_at_least("parallel.hybrid_shard_degree", sharding.hybrid_shard_degree, 0);
  int degree = 1;
  section.read(v1, degree);
  if (!section.has(v1)) {
    return;
  }
  check_at_least("parallel.sharded_data_parallel_degree", degree, 1);
  check(!section.has(v2) || sharding.hybrid_shard_degree == degree,
        "parallel.{} is {} and parallel.{} is {}; SMP v2 calls by the first name what v1 called by "
        "the second: give one",
        v2, sharding.hybrid_shard_degree, v1, degree);
  sharding.hybrid_shard_degree = degree;
  // Before the keys of these are read: a configuration of SMP v1 that names only its degree means
  // SMP's values for the rest, not ours.
  sharding.reduce_bucket_elements =
      static_cast<std::size_t>(smp::sdp_reduce_bucket_size.standard());
  sharding.persistence_threshold =
      static_cast<std::size_t>(smp::sdp_param_persistence_threshold.standard());
  sharding.max_live_elements = static_cast<std::size_t>(smp::sdp_max_live_parameters.standard());
}

void read_gradient_order(const nlohmann::json& root, JsonSection& section, FsdpOptions& sharding) {
  std::string order = name(sharding.gradient_order);
  section.read("gradient_order", order);
  check(
      order == name(GradientOrder::sequence) || order == name(GradientOrder::tree),
      "parallel.gradient_order is \"{}\"; it is \"sequence\" (each rank adds its micro-steps one "
      "after another) or \"tree\" (in an order that does not depend on how many ranks share them)",
      order);
  if (order != name(GradientOrder::tree)) {
    return;
  }
  const bool two_hop =
      JsonSection(root, "train").has("accumulate") && sharding.accumulate == Accumulate::two_hop;
  check(!two_hop,
        "parallel.gradient_order is \"tree\", by which each rank adds its micro-steps before ranks "
        "are added, and train.accumulate is \"two_hop\", which adds ranks first; leave "
        "train.accumulate out, or make it \"local\"");
  sharding.gradient_order = GradientOrder::tree;
  sharding.accumulate = Accumulate::local;
}

/// SMP keeps under sharding what is train.clip_norm here.
void read_parallel_clipping(const nlohmann::json& root, JsonSection& section,
                            FsdpOptions& sharding) {
  const char* const key = smp::sdp_gradient_clipping.name;
  const bool given = section.has(key);
  double limit = smp::sdp_gradient_clipping.standard();
  section.read(key, limit);
  if (!given && !section.has(smp::sharded_data_parallel_degree.name)) {
    return;
  }
  check(limit > 0, "parallel.{} is {}; it is above 0", key, limit);
  JsonSection train(root, "train");
  if (train.has("clip_norm")) {
    double ours = 0;
    train.read("clip_norm", ours);
    check(!given || limit == ours,
          "train.clip_norm is {} and parallel.{} is {}, two names of one thing", ours, key, limit);
    return;
  }
  sharding.clip_norm = static_cast<float>(limit);
}

}  // namespace

void read_parallel(const nlohmann::json& root, TrainConfig& config) {
  FsdpOptions& sharding = config.sharding;
  JsonSection section(root, "parallel");
  section.read("strategy", sharding.strategy);
  read_sharding_degree(section, sharding);
  section.read("prefetch_units", sharding.prefetch_units);
  section.read("reductions_in_flight", sharding.reductions_in_flight);
  read_count(section, {"max_live_elements", smp::sdp_max_live_parameters},
             sharding.max_live_elements);
  read_count(section, {"reduce_bucket_elements", smp::sdp_reduce_bucket_size},
             sharding.reduce_bucket_elements);
  read_count(section, {"persistence_threshold", smp::sdp_param_persistence_threshold},
             sharding.persistence_threshold);
  bool hierarchical = true;  // either is well: all-gathers choose their levels by the topology
  section.read(smp::sdp_hierarchical_allgather.name, hierarchical);
  section.read("state_tier", sharding.state_tier);
  section.read("shard_tier", sharding.shard_tier);
  read_gradient_order(root, section, sharding);
  read_parallel_clipping(root, section, sharding);
  read_microbatches(root, section, sharding.micro_steps);
  read_pipeline(section, sharding.micro_steps, config.pipeline);
  section.end();
  check_at_least("parallel.prefetch_units", sharding.prefetch_units, 0);
  check_at_least("parallel.reductions_in_flight", sharding.reductions_in_flight, 1);
}

}  // namespace sprat::train
