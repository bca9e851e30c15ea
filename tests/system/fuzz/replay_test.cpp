// What the fuzzers started from and what they found, once more in every build.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {
namespace {

TEST(Corpus, harms_nobody) {
  for (const Target& target : all_targets()) {
    int inputs = 0;
    const auto folder =
        std::filesystem::path(SPRAT_SOURCE_DIR) / "tests/system/fuzz/corpus" / target.name;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      SCOPED_TRACE(entry.path());
      target.run(std::as_bytes(std::span(bytes)));
      ++inputs;
    }
    EXPECT_GT(inputs, 0) << target.name;
  }
}

}  // namespace
}  // namespace sprat::fuzz
