// The store behind its public door, with a tier of its own.
#include <limits>
#include <utility>

#include "io/tier.hpp"
#include "mp/activation_store.hpp"
#include "sprat/activations.hpp"

namespace sprat {
namespace {

/// Without a tier every storage is too small to leave.
OffloadOptions offload_of(const ActivationOptions& options) {
  OffloadOptions offload = options.offload;
  if (options.tier.empty()) {
    offload.min_bytes = std::numeric_limits<std::size_t>::max();
  }
  return offload;
}

}  // namespace

struct ActivationMemory::Parts {
  std::unique_ptr<io::Tier> tier;  // outlives the store
  mp::ActivationStore store;
};

ActivationMemory::ActivationMemory(ActivationProgram program, const ActivationOptions& options) {
  std::unique_ptr<io::Tier> tier = io::open_tier(options.tier.empty() ? "memory" : options.tier);
  io::Tier& place = *tier;
  parts_.reset(new Parts{.tier = std::move(tier),
                         .store = {std::move(program),
                                   offload_of(options),
                                   place,
                                   {.poison = options.poison, .tracer = options.tracer}}});
}
ActivationMemory::~ActivationMemory() = default;
ActivationMemory::ActivationMemory(ActivationMemory&&) noexcept = default;

void ActivationMemory::begin_step() { parts_->store.begin_step(); }
std::span<std::byte> ActivationMemory::storage(int number) { return parts_->store.storage(number); }
std::span<std::byte> ActivationMemory::kept(int number) { return parts_->store.kept(number); }
void ActivationMemory::end_step() { parts_->store.end_step(); }
void ActivationMemory::restart() noexcept { parts_->store.restart(); }

std::optional<HorizonChoice> ActivationMemory::choose_horizon() const {
  return parts_->store.choose_horizon();
}
void ActivationMemory::set_horizon(int horizon) { parts_->store.set_horizon(horizon); }

std::size_t ActivationMemory::bytes_planned() const noexcept {
  return parts_->store.bytes_planned();
}
std::size_t ActivationMemory::bytes_high_water() const noexcept {
  return parts_->store.bytes_high_water();
}
const ActivationCounters& ActivationMemory::counters() const noexcept {
  return parts_->store.counters();
}

}  // namespace sprat
