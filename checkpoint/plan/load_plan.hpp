// Which bytes of which files belong where in a rank's parts. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/plan/contents.hpp"
#include "fsdp/model_state.hpp"

namespace sprat::fsdp {

/// Runs of `count` f32 elements of a file that become elements of a part: `times` of them, as many
/// bytes of the file and elements of the part from each other.
struct PartRead {
  std::size_t file = 0;
  std::uint64_t begin = 0;  ///< Byte in the file.
  std::size_t unit = 0, state = 0, offset = 0, count = 0;
  std::uint64_t times = 1, bytes_apart = 0;
  std::size_t elements_apart = 0;
};

enum class LoadWhat : std::uint8_t { everything, parameters };

/// Ascending by file and byte. A box that was cut as the rank's is one read; where a tensor of two
/// dimensions was cut otherwise, there are at most three for each box that was stored. Each element
/// of this rank's parts that belongs to a parameter comes once, if this rank's copy is the unit's
/// disk_copy(); the others get it from that one. Throws Error{invalid_argument} naming `where` and
/// the tensor if the model is another one: missing tensors, additional ones, other shapes or
/// dtypes.
std::vector<PartRead> plan_load(const std::string& where, const Contents& contents,
                                const ModelState& held, LoadWhat what);

}  // namespace sprat::fsdp
