// safetensors headers: what is written comes back, and what is wrong is refused by name.
#include "io/formats/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sprat/error.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Of a whole header, with `data_bytes` of data after it.
SafetensorsHeader parse_whole(const std::string& header, std::uint64_t data_bytes) {
  const std::uint64_t file_bytes = header.size() + data_bytes;
  EXPECT_EQ(safetensors_json_bytes("file", bytes_of(header), file_bytes), header.size() - 8);
  return parse_safetensors("file", std::string_view(header).substr(8), file_bytes);
}

TEST(Safetensors, a_header_comes_back_as_it_was) {
  const std::vector<SafeTensor> tensors = {
      {.name = "b", .dtype = "F32", .shape = {2, 3}, .begin = 0, .end = 24},
      {.name = "scalar", .dtype = "F64", .shape = {}, .begin = 24, .end = 32},
      {.name = "empty", .dtype = "BF16", .shape = {0, 7}, .begin = 32, .end = 32},
      {.name = "a \"name\"\n", .dtype = "U8", .shape = {5}, .begin = 32, .end = 37}};
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"k", "{\"x\": 1}"}};
  const std::string header = write_safetensors_header(tensors, metadata);
  EXPECT_EQ(header.size() % 64, 0u);
  const SafetensorsHeader parsed = parse_whole(header, 37);
  EXPECT_EQ(parsed.tensors, tensors);
  EXPECT_EQ(parsed.metadata, metadata);
  EXPECT_EQ(parsed.data_offset, header.size());
}

TEST(Safetensors, a_header_without_anything_is_a_header) {
  EXPECT_TRUE(parse_whole(write_safetensors_header({}, {}), 0).tensors.empty());
}

struct Refusal {
  const char* json;
  std::uint64_t data_bytes;
  const char* why;
};

TEST(Safetensors, what_is_wrong_is_refused_by_name) {
  const Refusal refusals[] = {
      {" {}", 0, "does not begin with '{'"},
      {"[]", 0, "does not begin with '{'"},
      {"{\"a\":", 0, "no JSON"},
      {"{} x", 0, "no JSON"},
      {"{\"\xff\":1}", 0, "no JSON"},
      {"{\"a\":[[[[[[[[[[1]]]]]]]]]]}", 0, "nested too deeply"},
      {R"({"a":1})", 0, "tensor \"a\" is described by number"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "tensor \"a\" has no \"dtype\""},
      {R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype \"F31\""},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "no array \"shape\""},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "holds -1"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "holds 1.5"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", 4, "no [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "no [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "4 bytes of data where"},
      {R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, "ends within a byte"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "more than 2^64 bits"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{}})", 1,
       "\"a\" is given twice"},
      {R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
       "\"dtype\" is given twice"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, "\"k\" is given twice"},
      {R"({"__metadata__":{"k":1}})", 0, "\"k\", which is no string"},
      {R"({"__metadata__":"k"})", 0, "__metadata__ is no object"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "with a hole after"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
           "b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensor \"b\" begins at byte 1 of the data, inside"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "cut short"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3, "too long"},
  };
  for (const Refusal& refusal : refusals) {
    const std::string json = refusal.json;
    try {
      parse_safetensors("folder/file.safetensors", json, 8 + json.size() + refusal.data_bytes);
      ADD_FAILURE() << "taken: " << json;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable) << json;
      EXPECT_THAT(error.what(), HasSubstr("folder/file.safetensors: ")) << json;
      EXPECT_THAT(error.what(), HasSubstr(refusal.why)) << json;
    }
  }
}

TEST(Safetensors, lengths_that_no_file_has_are_refused) {
  const auto length = [](std::uint64_t value) {
    std::string text;
    for (int at = 0; at < 8; ++at) {
      text.push_back(static_cast<char>(value >> (8 * at) & 0xff));
    }
    return text;
  };
  EXPECT_EQ(safetensors_json_bytes("f", bytes_of(length(0x0102)), 8 + 0x0102), 0x0102u);
  EXPECT_THROW(safetensors_json_bytes("f", bytes_of(length(3)), 10), Error);
  EXPECT_THROW(safetensors_json_bytes("f", bytes_of("1234567"), 7), Error);
  EXPECT_THROW(safetensors_json_bytes("f", bytes_of(length(100'000'001)), 200'000'000), Error);
  EXPECT_THROW(safetensors_json_bytes("f", bytes_of(length(~std::uint64_t{0})), 100), Error);
}

TEST(Safetensors, tensors_that_do_not_follow_each_other_are_not_written) {
  const SafeTensor a{.name = "a", .dtype = "U8", .shape = {2}, .begin = 0, .end = 2};
  const SafeTensor b{.name = "b", .dtype = "U8", .shape = {2}, .begin = 3, .end = 5};
  EXPECT_THROW(write_safetensors_header({a, b}, {}), Error);
  EXPECT_THROW(write_safetensors_header({a, a}, {}), Error);
}

}  // namespace
}  // namespace sprat::io
