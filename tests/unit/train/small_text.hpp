// A text that is learnt in a few steps.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace sprat::train {

/// 200 lines: "line 17 WORDS."
inline void write_small_text(const std::filesystem::path& path,
                             const std::string& words = "of a text that repeats itself") {
  std::ofstream text(path);
  for (int line = 0; line < 200; ++line) {
    text << "line " << line << ' ' << words << ".\n";
  }
}

}  // namespace sprat::train
