// Where each rank of a job stands when one model is spread over many ranks: which replica, shard,
// pipeline stage and tensor rank it is, and with whom it shares what.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/export.hpp"

namespace sprat {

/// A set of the axes along which ranks differ. Sets are joined by |; ~ is all other axes.
enum class Axes : std::uint8_t {
  none = 0,
  replica = 1,      ///< R: copies of the same shards.
  batch_shard = 2,  ///< Of S, the part whose ranks read different samples.
  context = 4,      ///< C: of S, the part whose ranks read different pieces of the same samples.
  pipeline = 8,     ///< P: stages of the model.
  tensor = 16,      ///< T: pieces of the same layers.
  shard = 6,        ///< S: the ranks that share one copy of the parameters; context is inside it.
  data = 7,         ///< D = R * S: SMP's reduced data parallel group, RDP.
  model = 24,       ///< SMP's MP group: the ranks that hold one copy of the model.
  world = 31,
};
constexpr Axes operator|(Axes a, Axes b) {
  return static_cast<Axes>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr Axes operator&(Axes a, Axes b) {
  return static_cast<Axes>(static_cast<std::uint8_t>(a) & static_cast<std::uint8_t>(b));
}
/// SMP's DP group, all ranks of one stage, is ~Axes::pipeline.
constexpr Axes operator~(Axes a) {
  return static_cast<Axes>(static_cast<std::uint8_t>(Axes::world) & ~static_cast<unsigned>(a));
}
/// "replica+tensor"; "shard" and "data" where whole; "none".
SPRAT_API std::string describe(Axes axes);

/// How many ranks there are along each axis: world = replica * shard * pipeline * tensor.
struct ParallelDegrees {
  int world = 1;
  int replica = 0;  ///< 0: what the other degrees leave of the world.
  int shard = 0;    ///< 0: what the other degrees leave; all of it if replica is 0 too.
  int context = 1;  ///< Divides shard.
  int pipeline = 1;
  int tensor = 1;
  /// A permutation of D (= R * S), P and T whose right-most letter varies fastest over ranks, or
  /// SMP's words: "cluster" is DPT, "spread" is TPD. Within D the shard varies faster than the
  /// replica, and within the shard the context fastest.
  std::string placement = "cluster";
};

/// A rank's place along each axis.
struct ParallelCoordinate {
  int replica = 0;
  int shard = 0;  ///< 0 .. shard - 1, of which context is the remainder by the context degree.
  int context = 0;
  int pipeline = 0;
  int tensor = 0;

  friend bool operator==(const ParallelCoordinate&, const ParallelCoordinate&) = default;
};

/// The ranks of a job as a grid. Pure; equal degrees give equal layouts on every rank.
class SPRAT_API ParallelLayout {
 public:
  /// Throws Error{invalid_argument} naming the degree, the world and the nearest degrees that fit.
  explicit ParallelLayout(const ParallelDegrees& degrees);

  /// With nothing left to choose: neither replica nor shard is 0, and placement is three letters.
  const ParallelDegrees& degrees() const noexcept { return degrees_; }
  int world() const noexcept { return degrees_.world; }
  /// How many ranks a group of these axes has.
  int size(Axes axes) const noexcept;

  ParallelCoordinate coordinate(int rank) const;
  int rank(const ParallelCoordinate& coordinate) const;

  /// The ranks that differ from `rank` along these axes alone, itself among them, rising.
  std::vector<int> group(Axes axes, int rank) const;
  /// All groups, by their first ranks. They partition the world.
  std::vector<std::vector<int>> groups(Axes axes) const;
  /// Where `rank` stands in its group; along one axis that is its coordinate.
  int rank_in(Axes axes, int rank) const;

  /// Into how many shares a batch is cut: replica * shard / context.
  int data_shares() const noexcept { return size(Axes::replica | Axes::batch_shard); }
  /// Which of them `rank` reads. Equal for ranks that differ along pipeline, tensor and context
  /// only.
  int data_share(int rank) const;

 private:
  static constexpr int axis_count = 5;
  std::array<int, axis_count> places(int rank) const;

  ParallelDegrees degrees_;
  /// By bit of Axes: the degree, and by how much a rank grows along it.
  std::array<int, axis_count> extents_{}, strides_{};
};

/// Collective over `world`, whose ranks are those of the layout: the communicator of this rank's
/// group, in the order of group(), named for the axes.
SPRAT_API Communicator split_along(Communicator& world, const ParallelLayout& layout, Axes axes);

}  // namespace sprat
