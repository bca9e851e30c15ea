// What of a table is run under a sanitizer, where everything takes five to twenty times as long.
// Release runs all of it.
#pragma once

#include <cstddef>
#include <vector>

namespace sprat {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

/// All of them; under a sanitizer every `step`-th, from number `turn` on, so that turns share the
/// table among them.
template <class T>
std::vector<T> part_if_sanitized(std::vector<T> all, std::size_t step, std::size_t turn = 0) {
  if (!sanitized) {
    return all;
  }
  std::vector<T> part;
  for (std::size_t i = turn % step; i < all.size(); i += step) {
    part.push_back(all[i]);
  }
  return part;
}

}  // namespace sprat
