// Where each parameter of a unit lies in its flat buffer, and which parts of it a shard holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sprat/fsdp.hpp"
#include "sprat/wire.hpp"

namespace sprat::fsdp {

/// Every parameter starts at a multiple of this many elements, but one of the same name and owner
/// as the one before it, which starts where that ends. So no block of a narrow wire has numbers of
/// two tensors: what stages or tensor ranks have alike would lose other bits on each, beside what
/// else they have, and be alike no longer.
inline constexpr std::size_t parameter_alignment = wire_block_elements;
/// Every shard is a whole number of blocks, which as f32 are pages: tiers keep and move those.
inline constexpr std::size_t block_elements = 1024;
static_assert(block_elements % parameter_alignment == 0, "shards begin with a wire's block");

/// One parameter in the flat buffer.
struct FlatItem {
  std::size_t offset = 0, count = 0;
  bool decay = true;
};

/// A contiguous part of a flat buffer whose parameters are of one of the caller's units.
struct FlatSegment {
  int owner = 0;                      ///< That unit.
  std::size_t offset = 0, count = 0;  ///< Multiples of block_elements.
};

/// A unit's flat buffer: parameters in the caller's order, gaps and tail zero.
struct FlatLayout {
  std::vector<FlatItem> items;
  std::vector<FlatSegment> segments;  ///< Ascending; they cover the buffer.
  std::size_t count = 0;              ///< Elements of the parameters themselves.
  std::size_t padded = 0;  ///< Elements of the buffer: shards * a multiple of block_elements.
};

/// Where a parameter is from.
struct ParameterOrigin {
  int owner = 0;               ///< One of the caller's units,
  std::uint64_t owner_id = 0;  ///< which has that UnitSpec::id.
  std::size_t offset = 0;      ///< In the flat buffer of that unit, were it neither split nor cut.
};

/// `origins` is by parameter; those of one owner are next to each other. Empty: all of unit 0.
/// Throws Error{invalid_argument} naming the unit and parameter whose shape has a negative extent.
FlatLayout lay_out(const UnitSpec& unit, int shards, std::span<const ParameterOrigin> origins = {});

/// A model whose small parameters are in a unit of their own, and those of tied units, which are
/// gradients alone, in another.
struct PersistentSplit {
  /// Where a parameter of the caller's units now lies.
  struct Place {
    int unit = 0, index = 0;
  };
  /// The caller's, and last those of persistent parameters, if any.
  std::vector<UnitSpec> units;
  std::vector<std::vector<ParameterOrigin>> origins;  ///< By unit and parameter.
  std::vector<std::vector<Place>> places;             ///< By the caller's unit and index.

  /// Units that the caller visits: all but those last ones.
  std::size_t visited() const { return places.size(); }
};
/// Moves parameters whose whole tensors have fewer than `threshold` elements into last units, so
/// that ranks which cut them differently move the same. Every unit has an id.
PersistentSplit split_persistent(std::vector<UnitSpec> units, std::size_t threshold);

/// A contiguous part of one parameter within a shard.
struct ShardPiece {
  int parameter = 0;
  std::size_t shard_offset = 0;      ///< Where it starts in the shard.
  std::size_t parameter_offset = 0;  ///< The same element's index in the parameter's box.
  std::size_t count = 0;
};

/// Elements of a shard that share a decay flag; offset and count are multiples of the alignment.
struct DecayRange {
  std::size_t offset = 0, count = 0;
  bool decay = true;
};

/// What one of `shards` equal parts of the flat buffer holds.
struct ShardLayout {
  std::size_t offset = 0, count = 0;  ///< Within the flat buffer.
  std::vector<ShardPiece> pieces;     ///< Ascending; gaps between them are zero.
  std::vector<DecayRange> ranges;     ///< Ascending; they cover the shard.
};
ShardLayout shard_layout(const FlatLayout& layout, int shards, int shard);

}  // namespace sprat::fsdp
