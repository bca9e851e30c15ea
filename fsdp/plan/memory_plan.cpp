// Lifetimes of an order, sizes by row, and the slots that both make.
#include "fsdp/plan/memory_plan.hpp"

#include "comm/base/check.hpp"
#include "sprat/wire.hpp"

namespace sprat::fsdp {

GradientRules gradient_rules(const Sharding& sharding, const FsdpOptions& options) {
  const bool sharded = shards_gradients(sharding);
  const std::vector<Hop> hops = reduction_hops(sharding, options.gradient_wire);
  const bool encoded = has_block_scales(options.gradient_wire);
  return {.sharded = sharded,
          .every_micro_step = sharded && options.accumulate == Accumulate::two_hop,
          .tree = options.gradient_order == GradientOrder::tree,
          .narrowed = options.gradient_wire != DType::f32 && sharding.ranks() > 1 && !encoded,
          .encoded_first = encoded && hops.size() == 1,
          .encoded_second = encoded && hops.size() == 2,
          .in_flight = options.reductions_in_flight,
          .bucket = options.reduce_bucket_elements};
}

SlotPlans plan_memory(const Visits& order, std::span<const Sharding> shardings,
                      const FsdpOptions& options, int states) {
  const Lifetimes lives = lifetimes(order, gradient_rules(shardings.front(), options));
  const std::size_t dtype = size_of(options.parameter_dtype);
  const DType wire = options.gradient_wire;
  const auto slots = [&](const char* kind, const std::vector<memory::Lives>& alive,
                         auto&& bytes_per_element) {
    std::vector<memory::Buffer> buffers;
    for (std::size_t buffer = 0; buffer < alive.size(); ++buffer) {
      const std::size_t unit = buffer % shardings.size();  // gradients may have several each
      buffers.push_back({.name = text(kind, " of ", order.units[unit]),
                         .bytes = bytes_per_element(order.elements[unit], shardings[unit]),
                         .lives = alive[buffer]});
    }
    return memory::plan_slots(buffers);
  };
  const auto whole = [](std::size_t element_bytes) {
    return [=](std::size_t elements, const Sharding&) { return elements * element_bytes; };
  };
  SlotPlans plans = {
      .parameters = slots("parameters", lives.parameters,
                          [&](std::size_t elements, const Sharding& sharding) {
                            return gathers_parameters(sharding) ? elements * dtype : 0;
                          }),
      .gradients = slots("gradients", lives.gradients, whole(sizeof(float))),
      .narrowed = slots("narrowed gradients", lives.narrowed,
                        [&](std::size_t elements, const Sharding& sharding) {
                          return has_block_scales(wire)
                                     ? encoded_hop(sharding, wire, elements).staging_bytes
                                     : elements * size_of(wire);
                        }),
      .sums = slots("sums", lives.sums,
                    [](std::size_t elements, const Sharding& sharding) {
                      return elements / static_cast<std::size_t>(sharding.shards) * sizeof(float);
                    }),
      .memory = {}};
  plans.memory.parameter_slots = plans.parameters.total();
  plans.memory.gradient_slots =
      plans.gradients.total() + plans.narrowed.total() + plans.sums.total();
  for (std::size_t unit = 0; unit < shardings.size(); ++unit) {
    const KeptBytes kept = kept_bytes(shardings[unit], order.elements[unit],
                                      options.parameter_dtype, states, options.parameter_wire);
    // A tied unit has a gradient and nothing else.
    const bool tied = order.values_of[unit] != static_cast<int>(unit);
    plans.memory.kept += tied ? kept.gradients : kept.total();
    if (options.error_feedback && static_cast<int>(unit) < order.visited()) {
      const EncodedHop hop = encoded_hop(shardings[unit], wire, order.elements[unit]);
      plans.memory.kept += (hop.sent + hop.returned) * sizeof(float);
    }
  }
  return plans;
}

}  // namespace sprat::fsdp
