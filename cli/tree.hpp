// Text drawn as a tree, and small quantities for people.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sprat::cli {

struct Tree {
  std::string text;
  std::vector<Tree> branches;
};

/// A line for each text, ending in a newline; branches hang below theirs.
std::string drawn(const Tree& tree);
/// "0-3,8" for ascending numbers; "none" if there are none.
std::string ranges(const std::vector<int>& numbers);
/// "512 KiB", "23.5 GiB".
std::string readable_bytes(std::size_t bytes);

}  // namespace sprat::cli
