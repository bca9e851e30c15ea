// How alike two words are spelt, for messages about words that nobody knows.
#pragma once

#include <cstddef>
#include <string_view>

namespace sprat {

/// Levenshtein's distance: how many letters must be inserted, left out or replaced to make one text
/// of the other.
std::size_t edit_distance(std::string_view one, std::string_view other);

}  // namespace sprat
