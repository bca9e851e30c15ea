// Hosts that share blocks of data, where everything between processes shall be encrypted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "sprat/data.hpp"
#include "sprat/error.hpp"

namespace sprat {
namespace {

TEST(DataPeers, are_refused_where_all_shall_be_encrypted) {
  ::setenv("SPRAT_ENCRYPT", "1", 1);
  bool asked = false;
  try {
    DataPeers peers({.host = "a", .address = "127.0.0.1", .gather = [&](const std::string& mine) {
                       asked = true;
                       return std::vector<std::string>{mine};
                     }});
    ADD_FAILURE() << "they share";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("are not encrypted"));
  }
  ::unsetenv("SPRAT_ENCRYPT");
  EXPECT_FALSE(asked) << "something was told";
}

}  // namespace
}  // namespace sprat
