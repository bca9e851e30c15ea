// Gathers before use, and refreshes after an update, along the axes that the row names.
#include "fsdp/unit_parameters.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "fsdp/plan/box_range.hpp"
#include "fsdp/rounding.hpp"

namespace sprat::fsdp {
namespace {

std::size_t kept_elements(const UnitCut& cut) {
  return cut.gathers_parameters ? cut.shard.count : cut.layout.padded;
}

bool has_masters(const UnitHome& home) {
  return keeps_masters(home.spread.sharding, home.options.parameter_dtype,
                       home.options.parameter_wire);
}

}  // namespace

UnitParameters::UnitParameters(const UnitCut& cut, const UnitHome& home)
    : cut_(cut),
      home_(home),
      kept_(kept_elements(cut) * size_of(home.options.parameter_dtype),
            cut.gathers_parameters ? home.shard_tier : nullptr),
      masters_(has_masters(home) ? cut.own.count * sizeof(float) : 0,
               has_masters(home) ? home.state_tier : nullptr) {
  fill();
}

std::size_t UnitParameters::kept_bytes() const {
  return kept_.bytes().size() + masters_.bytes().size();
}

/// Kept parameters by flat offset.
Elements UnitParameters::kept(std::size_t offset, std::size_t count) const {
  const std::size_t begin = cut_.gathers_parameters ? cut_.shard.offset : 0;
  return part_of(kept_.bytes().data(), offset - begin, count, home_.options.parameter_dtype);
}

std::span<float> UnitParameters::own() {
  if (has_masters(home_) || cut_.own.count == 0) {
    return masters_.as_floats();
  }
  return {static_cast<float*>(kept(cut_.own.offset, cut_.own.count).data), cut_.own.count};
}

bool UnitParameters::encodes_gather() const {
  return home_.options.parameter_wire && cut_.gathers_parameters && !encodes_refresh();
}

bool UnitParameters::encodes_refresh() const {
  return home_.options.parameter_wire && !refresh_axes(home_.spread.sharding).empty();
}

/// The owner's own values come back to it decoded, as the others get them.
Pending UnitParameters::start_encoded(const EncodedArray& whole, const ConstElements& own,
                                      std::size_t first, AxisCommunicator& axis_communicator) {
  whole.encode(own, first);
  arriving_ = whole;
  return axis_communicator.all_gather(whole.blocks(first, own.count), whole.blocks(),
                                      home_.traffic.parameters, cut_.spec.name);
}

void UnitParameters::end_transfer() {
  under_way_.wait();
  if (const auto arrived = std::exchange(arriving_, std::nullopt)) {
    arrived->decode();
  }
}

void UnitParameters::fill() {
  // All that is kept is filled, not only the own part: nothing needs to be sent.
  const auto fill_part = [&](const ShardLayout& part, std::span<float> into) {
    for (const ShardPiece& piece : part.pieces) {
      const ParameterSpec& spec = cut_.spec.parameters[static_cast<std::size_t>(piece.parameter)];
      if (!spec.initial) {
        continue;
      }
      auto next = into.begin() + static_cast<std::ptrdiff_t>(piece.shard_offset);
      for_each_run_of_range(spec.shape, held_box(spec), piece.parameter_offset, piece.count,
                            [&](BoxRun run) {
                              for (std::int64_t i = 0; i < run.count; ++i) {
                                *next++ = spec.initial(static_cast<std::uint64_t>(run.offset + i));
                              }
                            });
    }
  };
  const int shards = cut_.gathers_parameters ? home_.spread.sharding.shards : 1;
  const int shard = cut_.gathers_parameters ? home_.rank % shards : 0;
  if (!has_masters(home_)) {
    fill_part(shard_layout(cut_.layout, shards, shard), kept_.as_floats());
    return;
  }
  fill_part(cut_.own, masters_.as_floats());
  // Piece by piece, so that no more than one part is ever there in f32.
  const int pieces = std::max(1, cut_.part.parts / shards);
  std::vector<float> piece(divided(kept_elements(cut_), pieces));
  for (int index = 0; index < pieces; ++index) {
    const ShardLayout one = shard_layout(cut_.layout, shards * pieces, shard * pieces + index);
    std::ranges::fill(piece, 0.0f);
    fill_part(one, piece);
    narrow(home_.options.parameter_dtype, piece, kept(one.offset, one.count).data);
  }
  if (encodes_refresh()) {  // as if they had been gathered
    pass_through(*home_.options.parameter_wire,
                 {kept_.bytes().data(), kept_elements(cut_), home_.options.parameter_dtype});
  }
}

void UnitParameters::start_gather() {
  if (!cut_.gathers_parameters || cut_.layout.padded == 0) {
    return;
  }
  finish();  // a refresh, which may still write what is gathered from
  slot_ = home_.parameter_slots->take(cut_.id);
  state_.move_to(ParameterState::gathering);
  AxisCommunicator& axis_communicator = *home_.spread.axis_communicators[shard_axis];
  const Elements part = kept(cut_.shard.offset, cut_.shard.count);
  const Elements whole =
      part_of(slot_.data(), 0, cut_.layout.padded, home_.options.parameter_dtype);
  under_way_ = encodes_gather() ? start_encoded({whole, *home_.options.parameter_wire}, part,
                                                cut_.shard.offset, axis_communicator)
                                : axis_communicator.all_gather(
                                      part, whole, home_.traffic.parameters, cut_.spec.name);
}

void UnitParameters::finish() {
  end_transfer();
  if (state_.is(ParameterState::gathering)) {
    state_.move_to(ParameterState::full);
    kept_.release();  // what is read until the next refresh is the slot
  } else if (state_.is(ParameterState::refreshing)) {
    state_.move_to(ParameterState::kept);
  }
}

void UnitParameters::drop() {
  finish();
  if (state_.is(ParameterState::full)) {
    state_.move_to(ParameterState::kept);
    slot_ = {};
  }
}

ConstElements UnitParameters::full(int index) const {
  const FlatItem& item = cut_.layout.items[static_cast<std::size_t>(index)];
  void* const all = cut_.gathers_parameters ? slot_.data() : kept_.bytes().data();
  return part_of(all, item.offset, item.count, home_.options.parameter_dtype);
}

void UnitParameters::release() {
  kept_.release();
  masters_.release();
}

void UnitParameters::round_masters(std::int64_t step) {
  const DType dtype = home_.options.parameter_dtype;
  void* const own = kept(cut_.own.offset, cut_.own.count).data;
  if (!home_.options.stochastic_rounding || step == 0) {
    narrow(dtype, masters_.as_floats(), own);
    return;
  }
  // By their places in the caller's whole unit, so that it does not matter what persists, how
  // tensors are cut, nor on which stage the unit is. What lies between parameters is zero, and
  // stays.
  for (const ShardPiece& piece : cut_.own.pieces) {
    const auto parameter = static_cast<std::size_t>(piece.parameter);
    const ParameterOrigin& origin = cut_.origins[parameter];
    const ParameterSpec& spec = cut_.spec.parameters[parameter];
    std::size_t at = piece.shard_offset;
    for_each_run_of_range(
        spec.shape, held_box(spec), piece.parameter_offset, piece.count, [&](BoxRun run) {
          const auto count = static_cast<std::size_t>(run.count);
          narrow_stochastically(dtype, masters_.as_floats().subspan(at, count),
                                part_of(own, at, count, dtype).data,
                                {.seed = home_.options.seed,
                                 .step = step,
                                 .unit = static_cast<std::uint32_t>(origin.owner_id),
                                 .first = origin.offset + static_cast<std::uint64_t>(run.offset)});
          at += count;
        });
  }
}

void UnitParameters::refresh(std::int64_t step) {
  if (cut_.layout.padded == 0) {
    return;
  }
  finish();
  state_.move_to(ParameterState::refreshing);
  if (has_masters(home_)) {
    round_masters(step);
  }
  std::size_t offset = cut_.own.offset, count = cut_.own.count;
  for (const Axis axis : refresh_axes(home_.spread.sharding)) {
    end_transfer();  // each axis gathers what the one before has made
    AxisCommunicator& axis_communicator = *home_.spread.axis_communicators[axis];
    const Elements part = kept(offset, count);
    const std::size_t first = count * static_cast<std::size_t>(axis_communicator.rank());
    offset -= first;
    count *= static_cast<std::size_t>(axis_communicator.size());
    const Elements whole = kept(offset, count);
    under_way_ =
        encodes_refresh()
            ? start_encoded({whole, *home_.options.parameter_wire}, part, first, axis_communicator)
            : axis_communicator.all_gather(part, whole, home_.traffic.parameters, cut_.spec.name);
  }
}

}  // namespace sprat::fsdp
