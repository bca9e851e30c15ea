// Numbers of JSON as whole ones, where nlohmann's get() would cut them off or wrap them.
#include "comm/base/strict_json.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace sprat {
namespace {

using Json = nlohmann::json;

Json parsed(const char* text) { return Json::parse(text); }

TEST(WholeNumber, is_taken_where_it_fits) {
  EXPECT_EQ(whole_number<int>(parsed("7")), 7);
  EXPECT_EQ(whole_number<int>(parsed("-2147483648")), std::numeric_limits<int>::min());
  EXPECT_EQ(whole_number<int>(parsed("7.0")), 7);
  EXPECT_EQ(whole_number<int>(parsed("1e6")), 1'000'000);
  EXPECT_EQ(whole_number<std::uint64_t>(parsed("18446744073709551615")), UINT64_MAX);
  EXPECT_EQ(whole_number<std::int64_t>(parsed("-9223372036854775808")), INT64_MIN);
  EXPECT_EQ(whole_numbers<int>(parsed("[1, 2.0, -3]")), (std::vector<int>{1, 2, -3}));
  EXPECT_TRUE(whole_numbers<int>(parsed("[]")).empty());
}

TEST(WholeNumber, is_refused_where_it_does_not) {
  for (const char* text : {"2147483648", "-2147483649", "4294967298", "1.5", "1e10", "2e25", "-0.5",
                           "9007199254740994.0", "18446744073709551616"}) {
    EXPECT_THROW(whole_number<int>(parsed(text)), Json::out_of_range) << text;
  }
  EXPECT_THROW(whole_number<std::uint64_t>(parsed("-1")), Json::out_of_range);
  EXPECT_THROW(whole_number<std::uint64_t>(parsed("18446744073709551616")), Json::out_of_range);
  EXPECT_THROW(whole_number<std::int64_t>(parsed("9223372036854775808")), Json::out_of_range);
  EXPECT_THROW(whole_number<int>(Json(std::numeric_limits<double>::quiet_NaN())),
               Json::out_of_range);
  EXPECT_THROW(whole_number<int>(Json(std::numeric_limits<double>::infinity())),
               Json::out_of_range);
  EXPECT_THROW(whole_numbers<int>(parsed("[1, 1e30]")), Json::out_of_range);
}

TEST(WholeNumber, is_no_other_kind_of_value) {
  for (const char* text : {"true", "null", "\"7\"", "[7]", "{}"}) {
    EXPECT_THROW(whole_number<int>(parsed(text)), Json::type_error) << text;
  }
  EXPECT_THROW(whole_numbers<int>(parsed("7")), Json::type_error);
}

TEST(JsonReasons, have_no_parser_s_name_and_one_line) {
  for (const char* text : {"", "{\n\"a\"\n", "[1,]", "\xff"}) {
    try {
      ADD_FAILURE() << Json::parse(text) << " was taken";
    } catch (const Json::exception& error) {
      const std::string reason = reason_of(error);
      EXPECT_TRUE(reason.starts_with("parse error at line ")) << reason;
      EXPECT_EQ(reason.find('\n'), std::string::npos) << reason;
    }
  }
}

}  // namespace
}  // namespace sprat
