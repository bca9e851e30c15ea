// Every tier gives arrays that hold what is put into them, and says what it lacks.
#include "io/tier.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sprat/error.hpp"

namespace sprat::io {
namespace {

std::vector<std::string> tiers() { return {"memory", "file:" + testing::TempDir()}; }

TEST(Tier, there_is_a_name_here_for_each) { ASSERT_EQ(tiers().size(), all_tier_kinds().size()); }

TEST(Tier, arrays_begin_as_zeros_and_hold_what_is_put_into_them) {
  for (const std::string& name : tiers()) {
    const auto tier = open_tier(name);
    std::vector<std::span<std::byte>> arrays;
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 20}) {
      arrays.push_back(tier->allocate(bytes));
      ASSERT_EQ(arrays.back().size(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arrays.back().data()) % 4096, 0u);
      for (const std::byte one : arrays.back()) {
        ASSERT_EQ(one, std::byte{0});
      }
    }
    for (int round = 1; round < 4; ++round) {
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        tier->fetch(arrays[i]);
        std::ranges::fill(arrays[i], static_cast<std::byte>(round * 16 + static_cast<int>(i)));
        tier->release(arrays[i]);
      }
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        for (const std::byte one : arrays[i]) {
          ASSERT_EQ(one, static_cast<std::byte>(round * 16 + static_cast<int>(i))) << name;
        }
      }
    }
    EXPECT_EQ(tier->allocate(0).size(), 0u);
  }
}

TEST(Tier, files_have_no_name_that_a_crash_could_leave) {
  const std::filesystem::path folder = testing::TempDir() + "tier_is_empty";
  std::filesystem::create_directory(folder);
  const auto tier = open_tier("file:" + folder.string());
  tier->allocate(100);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

std::string message_of(const std::string& name, ErrorCode code) {
  try {
    open_tier(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << name << " was opened";
  return "";
}

TEST(Tier, what_cannot_be_is_refused_by_name) {
  EXPECT_NE(message_of("tape", ErrorCode::invalid_argument).find("there are: file, memory"),
            std::string::npos);
  EXPECT_NE(message_of("file", ErrorCode::invalid_argument).find("file:/local/scratch"),
            std::string::npos);
  EXPECT_NE(message_of("memory:/here", ErrorCode::invalid_argument).find("\"/here\""),
            std::string::npos);
  EXPECT_NE(message_of("file:/nowhere/at/all", ErrorCode::unavailable).find("/nowhere/at/all"),
            std::string::npos);
  try {
    open_tier("file:" + testing::TempDir())->allocate(std::size_t{1} << 60);
    ADD_FAILURE() << "an exbibyte was reserved";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot reserve"), std::string::npos);
  }
}

}  // namespace
}  // namespace sprat::io
