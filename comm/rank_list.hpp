// Ranks, written for people.
#pragma once

#include <string>
#include <vector>

namespace sprat::comm {

/// "rank 3", "ranks 0-2, 5", "no rank". Ascending ranks; a long list is cut after 16 ranges.
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace sprat::comm
