// Which ranks go on after a failure: what each says, and what follows from it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/base/blob.hpp"

namespace sprat::comm {

/// What a rank that wants to go on knows. Ranks are numbered as the job first had them.
struct Testimony {
  std::uint32_t generation = 0;  ///< How often the job has shrunk, as far as this rank knows.
  std::vector<int> members;      ///< Its ranks since then, ascending.
  bool operator==(const Testimony&) const = default;
};
Blob encode(const Testimony& testimony);
/// Null if the bytes are none.
std::optional<Testimony> decode_testimony(const Blob& blob);

/// Of the ranks that have given a testimony, those that the latest generation among them has as
/// members, ascending. A rank that slept through an earlier shrink is not among them: the others
/// went on without it.
std::vector<int> survivors(const std::vector<Blob>& testimonies);

}  // namespace sprat::comm
