// What tiers differ in: where arrays and slots lie. Each kind is a row of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace sprat::io {

/// How much a tier may have of what is stored in it.
struct TierLimits {
  std::size_t held_bytes = ~std::size_t{0};  ///< All slots, each of whole pages.
  /// Stores that have not ended, and as many bytes of loads. One alone may be larger.
  std::size_t in_flight_bytes = std::size_t{256} << 20;
};

/// Where a tier's bytes are. Calls block, and throw Error{unavailable} naming the place, the
/// system's reason and a remedy. Arrays and slots are independent: one thread uses arrays while
/// another one uses slots.
class TierPlace {
 public:
  virtual ~TierPlace() = default;
  /// For people: "memory", "file:/local/scratch".
  virtual std::string name() const = 0;

  /// As Tier has them.
  virtual std::span<std::byte> allocate(std::size_t bytes) = 0;
  virtual void fetch(std::span<std::byte> array) noexcept = 0;
  virtual void release(std::span<std::byte> array) noexcept = 0;

  /// Slots are ranges of one address space that begins at 0. There is room for those up to `end`
  /// once it returns; called with ever larger ends, before anything is written there.
  virtual void reserve(std::uint64_t end) = 0;
  virtual void write(std::uint64_t offset, std::span<const std::byte> piece) = 0;
  /// The range, which is not empty, is read soon, so that it can be brought near meanwhile. Never
  /// fails.
  virtual void read_ahead(std::uint64_t offset, std::size_t bytes) noexcept = 0;
  virtual void read(std::uint64_t offset, std::span<std::byte> piece) = 0;
  /// All of a slot has been written, or read: memory need not hold what stands for it any more.
  virtual void settle(std::uint64_t offset, std::size_t bytes) = 0;
};

/// An entry of the table of tiers, one file of io/tiers/ each.
struct TierKind {
  const char* name;
  /// Stands in for something in tests: no configuration may name it.
  bool for_tests = false;
  /// `place` is what follows the name and a colon; empty: nothing does. A place on a disk reserves
  /// the slots that a limit tells, so that a disk that is too small is noticed at once.
  std::unique_ptr<TierPlace> (*open)(const std::string& place, const TierLimits& limits);
};
std::span<const TierKind* const> all_tier_kinds() noexcept;

}  // namespace sprat::io
