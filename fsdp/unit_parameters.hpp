// A unit's parameters on one rank: what stays between uses, and all of them while they are needed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "fsdp/axis_communicator.hpp"
#include "fsdp/encoded_array.hpp"
#include "fsdp/unit_home.hpp"
#include "fsdp/unit_states.hpp"
#include "memory/arena.hpp"

namespace sprat::fsdp {

/// Not thread-safe. The calls that start or finish an operation are collective.
class UnitParameters {
 public:
  /// Fills what this rank keeps with initial values.
  UnitParameters(const UnitCut& cut, const UnitHome& home);

  /// Bytes kept between steps, masters included.
  std::size_t kept_bytes() const;
  /// A gather comes soon: the shard is brought near, if it is far.
  void fetch() const { kept_.fetch(); }
  /// Starts to make the parameters full; they are once finish() returns.
  void start_gather();
  /// Ends the gather or the refresh that is under way, if one is.
  void finish();
  /// Lets go of the full parameters, if the unit does not keep them anyway.
  void drop();
  ConstElements full(int index) const;

  /// f32 values of the part that this rank updates.
  std::span<float> own();
  void fetch_masters() const { masters_.fetch(); }
  void release();
  /// The own part was updated: starts to make what ranks keep whole again.
  void refresh(std::int64_t step);

 private:
  /// The parameters travel as blocks when they are gathered for use, or after an update.
  bool encodes_gather() const;
  bool encodes_refresh() const;
  Pending start_encoded(const EncodedArray& whole, const ConstElements& own, std::size_t first,
                        AxisCommunicator& axis_communicator);
  void end_transfer();
  void fill();
  void round_masters(std::int64_t step);
  Elements kept(std::size_t offset, std::size_t count) const;

  const UnitCut& cut_;
  const UnitHome& home_;
  KeptArray kept_;     // of options.parameter_dtype: a shard, or all
  KeptArray masters_;  // of the own part, if what is updated is not what is used
  memory::Lease slot_;
  State<ParameterState> state_;
  std::optional<EncodedArray> arriving_;  // holds blocks until what is under way has ended
  Pending under_way_;
};

}  // namespace sprat::fsdp
