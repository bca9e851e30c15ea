// Which call's values are kept, and how two of them are compared.
#include "collectives/digests/kept_values.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "collectives/digests/run_files.hpp"
#include "sprat/error.hpp"

namespace sprat::collectives::digests {
namespace {

TEST(KeptValues, names_come_back) {
  const std::vector<KeptCall> calls = {
      {.communicator = "world", .number = 412},
      {.communicator = "a name of words 3", .number = 0},
      {.communicator = "world.0/1", .kind = CallKind::receive, .number = 3, .partner = 1, .tag = 7},
      {.communicator = "world", .kind = CallKind::send, .number = 3, .partner = 1, .tag = 7}};
  for (const KeptCall& call : calls) {
    EXPECT_EQ(kept_call(to_text(call)), call) << to_text(call);
  }
  for (const char* text : {"", "world", "412", "world x", "world -1", "world 4 "}) {
    EXPECT_THROW(kept_call(text), Error) << text;
  }
}

TEST(KeptValues, one_call_is_meant) {
  const KeptCall message = kept_call("world recv 3 from 1 tag 7");
  Call call;
  call.number = 3;
  EXPECT_FALSE(message.names(call));
  EXPECT_TRUE(kept_call("world 3").names(call));
  call.kind = CallKind::receive;
  call.partner = 1;
  call.tag = 7;
  EXPECT_TRUE(message.names(call));
  EXPECT_FALSE(kept_call("world 3").names(call));
  call.tag = 8;
  EXPECT_FALSE(message.names(call));
}

std::vector<std::byte> file_of(const std::vector<float>& values) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("sprat-values-" + std::to_string(getpid())))
          .string();
  keep_values(path, {values.data(), values.size(), DType::f32});
  const MappedFile file(path);
  std::vector<std::byte> bytes(file.bytes().begin(), file.bytes().end());
  std::filesystem::remove(path);
  return bytes;
}

TEST(KeptValues, the_first_bit_that_differs_is_found) {
  std::vector<float> values(1000, 1.5f);
  const std::vector<std::byte> one = file_of(values);
  values[77] = -1.5f;
  values[900] = 0;
  const std::vector<std::byte> other = file_of(values);
  const auto a = parse_values(one), b = parse_values(other);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(compare(*a, *b).first, 77u);
  EXPECT_EQ(compare(*a, *b).number, 2u);
  EXPECT_EQ(compare(*a, *a).number, 0u);
  EXPECT_EQ(element_text(*a, 77), "1.5 (0x3fc00000)");
  EXPECT_EQ(element_text(*b, 77), "-1.5 (0xbfc00000)");
}

TEST(KeptValues, a_cut_file_is_none) {
  const std::vector<std::byte> whole = file_of({1, 2, 3});
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(parse_values(std::span(whole).first(bytes))) << bytes;
  }
  EXPECT_TRUE(parse_values(whole));
}

}  // namespace
}  // namespace sprat::collectives::digests
