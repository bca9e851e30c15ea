// Where arrays live that are not needed all the time: memory, or a file that stands in for it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sprat::io {

/// Arrays of a tier are memory to whoever uses them. One thread at a time. What is allocated lives
/// as long as the tier.
class Tier {
 public:
  virtual ~Tier() = default;
  /// Zeroed, page aligned. Throws Error{unavailable} naming the place and what is missing.
  virtual std::span<std::byte> allocate(std::size_t bytes) = 0;
  /// The array is used soon, so that it can be brought near meanwhile. Never fails.
  virtual void fetch(std::span<std::byte> array) noexcept = 0;
  /// The array is not used for a while: it may go back, and take no memory.
  virtual void release(std::span<std::byte> array) noexcept = 0;
};

/// An entry of the table of tiers, one file of io/tiers/ each.
struct TierKind {
  const char* name;
  /// `place` is what follows the name and a colon; empty: nothing does.
  std::unique_ptr<Tier> (*open)(const std::string& place);
};
std::span<const TierKind* const> all_tier_kinds() noexcept;

/// "memory", "file:/local/scratch". Throws Error{invalid_argument} that lists what there is,
/// Error{unavailable} naming a place that cannot be used.
std::unique_ptr<Tier> open_tier(std::string_view name);

}  // namespace sprat::io
