// Defects planted for the simulation are patches: each must still fit the sources, or it plants
// nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/architecture/source_tree.hpp"

namespace sprat::architecture {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// A patch of one hunk: the file it changes, and the lines that it expects there.
struct Plant {
  std::string file;
  std::string before;
};

Plant read_plant(const fs::path& path) {
  Plant plant;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("+++ b/")) {
      plant.file = line.substr(6);
    } else if (!line.starts_with("---") && (line.starts_with("-") || line.starts_with(" "))) {
      plant.before += line.substr(1) + "\n";
    } else if (line.empty()) {
      plant.before += "\n";
    }
  }
  return plant;
}

TEST(Plants, fit_the_sources) {
  int plants = 0;
  for (const auto& entry :
       fs::directory_iterator(source_root() / "tests/system/simulation/plants")) {
    if (entry.path().extension() != ".patch") {
      continue;
    }
    ++plants;
    const Plant plant = read_plant(entry.path());
    ASSERT_TRUE(fs::exists(source_root() / plant.file)) << entry.path() << ": " << plant.file;
    EXPECT_NE(text_of(source_root() / plant.file).find(plant.before), std::string::npos)
        << entry.path().filename() << " expects in " << plant.file << ":\n"
        << plant.before;
  }
  EXPECT_GE(plants, 6);
}

}  // namespace
}  // namespace sprat::architecture
