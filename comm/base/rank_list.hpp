// Ranks and other numbers, written for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sprat::comm {

/// "rank 3", "ranks 0-2, 5", "no rank" of a noun "rank". Ascending numbers; a long list is cut
/// after 16 ranges.
std::string list_text(std::string_view noun, const std::vector<int>& numbers);
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace sprat::comm
