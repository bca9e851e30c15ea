// Hashes of what ranks hold, compared between the copies of each part.
#include "checkpoint/checks/replicas.hpp"

#include <xxhash.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/agreement.hpp"
#include "comm/base/check.hpp"

namespace sprat::fsdp {
namespace {

/// Of all states of a unit as this rank holds them, after `seed`.
std::uint64_t hash_of(const StoredUnit& unit, std::uint64_t seed) {
  for (const std::span<float> values : unit.values) {
    seed = XXH3_64bits_withSeed(values.data(), values.size_bytes(), seed);
  }
  return seed;
}

std::vector<std::uint64_t> gathered(Communicator& world, const std::vector<std::uint64_t>& mine) {
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  world
      .all_gather(elements(std::span<const std::uint64_t>(mine)), elements(all),
                  {.timeout = {}, .blocking = true})
      .wait();
  return all;
}

struct Parted {
  int first = 0, other = 0;
};

/// Two ranks that hold the same part of `unit` by different hashes. Each rank gave `stride` of
/// them, of which entry `at` is meant.
std::optional<Parted> parted(const StoredUnit& unit, const std::vector<std::uint64_t>& hashes,
                             std::size_t stride, std::size_t at) {
  const auto hash = [&](int rank) { return hashes[static_cast<std::size_t>(rank) * stride + at]; };
  for (int part = 0; part < unit.parts; ++part) {
    const int first = unit.holders[static_cast<std::size_t>(part)];
    for (int copy = 1; copy < unit.copies; ++copy) {
      const int other = unit.holders[static_cast<std::size_t>(copy * unit.parts + part)];
      if (hash(first) != hash(other)) {
        return Parted{.first = first, .other = other};
      }
    }
  }
  return std::nullopt;
}

/// The hash of a unit that this rank holds no part of: nobody looks at it.
constexpr std::uint64_t no_hash = 0;

[[noreturn]] void refuse(Communicator& world, const ModelState& held) {
  std::vector<std::uint64_t> mine;
  for (const StoredUnit& unit : held.units) {
    mine.push_back(unit.is_held() ? hash_of(unit, 0) : no_hash);
  }
  const std::vector<std::uint64_t> all = gathered(world, mine);
  for (std::size_t at = 0; at < mine.size(); ++at) {
    const StoredUnit& unit = held.units[at];
    if (const auto two = parted(unit, all, mine.size(), at)) {
      throw Error(ErrorCode::mismatch,
                  text("ranks ", rank_in_job(world, two->first), " and ",
                       rank_in_job(world, two->other), " hold copies of unit \"", unit.spec->name,
                       "\" that differ, and nothing was saved: they compute differently, as other "
                       "processors or libraries may, or memory is faulty. Go on from the last "
                       "checkpoint on hosts that are alike, or without copies "
                       "(hybrid_shard_degree 0)"));
    }
  }
  throw Error(ErrorCode::internal, "copies of the model differed, and now do not");
}

}  // namespace

void check_replicas(Communicator& world, const ModelState& held) {
  // Units that are cut alike have the same copies on the same ranks: one hash for all of them.
  std::map<int, std::uint64_t> hashes;                        // by parts
  std::map<std::pair<int, int>, const StoredUnit*> examples;  // by parts and first holder
  for (const StoredUnit& unit : held.units) {
    if (unit.copies > 1) {
      std::uint64_t& hash = hashes.emplace(unit.parts, no_hash).first->second;
      hash = unit.is_held() ? hash_of(unit, hash) : hash;
      examples[{unit.parts, unit.holders[0]}] = &unit;
    }
  }
  std::vector<std::uint64_t> mine;
  std::map<int, std::size_t> places;  // by parts, in `mine`
  for (const auto& [parts, hash] : hashes) {
    places[parts] = mine.size();
    mine.push_back(hash);
  }
  if (mine.empty()) {
    return;
  }
  const std::vector<std::uint64_t> all = gathered(world, mine);
  for (const auto& [key, unit] : examples) {
    if (parted(*unit, all, mine.size(), places.at(unit->parts))) {
      refuse(world, held);
    }
  }
}

}  // namespace sprat::fsdp
