// Where a run stands in its samples, as JSON of less than 1 KB: equal on all ranks, and good for
// any number of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "io/order/global_batches.hpp"
#include "io/order/sample_stream.hpp"
#include "io/order/skip_list.hpp"

namespace sprat::io {

struct StreamState {
  StreamPosition position = {};  ///< Of the first sample that has not been trained on.
  SkipList skips = SkipList();
};

/// No state is longer.
inline constexpr std::size_t longest_state = 1023;

/// Of the skip list it keeps the longest ranges, at most 24, which changes no sample (SkipList). Of
/// many sources it keeps digests; then reading it cannot say what differs, but only which source,
/// or that one does.
std::string write_state(const SampleStream& stream, const StreamState& state);

/// Throws Error{invalid_argument} if it is the state of another stream, with each thing that
/// differs, its two values and what to do; Error{unavailable} if `json` is no state.
StreamState read_state(const SampleStream& stream, std::string_view json);

}  // namespace sprat::io
