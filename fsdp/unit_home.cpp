// Cutting a unit, and arrays in tiers or memory.
#include "fsdp/unit_home.hpp"

namespace sprat::fsdp {

UnitCut::UnitCut(const UnitSpec& unit, std::span<const ParameterOrigin> parameter_origins,
                 int number, const Sharding& sharding, int rank)
    : spec(unit),
      origins(parameter_origins.begin(), parameter_origins.end()),
      id(number),
      gathers_parameters(fsdp::gathers_parameters(sharding)),
      shards_gradients(fsdp::shards_gradients(sharding)),
      part(optimizer_part(sharding, rank)),
      layout(lay_out(unit, part.parts, origins)),
      own(shard_layout(layout, part.parts, part.part)),
      shard(shard_layout(layout, sharding.shards, rank % sharding.shards)) {}

KeptArray::KeptArray(std::size_t bytes, io::Tier* tier)
    : tier_(tier), memory_(tier == nullptr ? Memory(bytes) : Memory()) {
  bytes_ = tier == nullptr ? memory_.as<std::byte>() : tier->allocate(bytes);
}

void KeptArray::fetch() const {
  if (tier_ != nullptr) {
    tier_->fetch(bytes_);
  }
}

void KeptArray::release() const {
  if (tier_ != nullptr) {
    tier_->release(bytes_);
  }
}

}  // namespace sprat::fsdp
