// Manifests: what is written comes back, and no byte of it can change unnoticed.
#include "checkpoint/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "sprat/error.hpp"

namespace sprat::fsdp {
namespace {

using testing::HasSubstr;

Manifest some_manifest() {
  Manifest manifest;
  manifest.step = 1234;
  manifest.samples = 5'000'000'000;
  manifest.counters = {{"optimizer_steps", 1234}, {"loss_scale", 0.1}};
  manifest.notes = {{"a \"note\"\n", "é"}};
  manifest.config = {{"strategy", "zero3"}};
  manifest.contents.tensors = {
      {.name = "a",
       .shape = {5, 2},
       .boxes = {{.file = 1, .begin = 64, .box = {{0, 0}, {3, 2}}},
                 {.file = 0, .begin = 64, .box = {{3, 0}, {2, 2}}}}},
      {.name = "b", .dtype = "BF16", .shape = {}, .boxes = {{.file = 0, .begin = 80, .box = {}}}}};
  manifest.contents.files = {
      {.name = "f0", .record = {.bytes = 82, .blocks = {0xffffffffffffffff}}},
      {.name = "f1", .record = {.bytes = 88, .blocks = {7}}}};
  return manifest;
}

std::string manifest_complaint(const std::string& text) {
  try {
    parse_manifest("folder/manifest.json", text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable) << error.what();
    EXPECT_THAT(error.what(), testing::StartsWith("folder/manifest.json: "));
    return error.what();
  }
  return "nothing was refused";
}

TEST(Manifest, comes_back_as_it_was) {
  const Manifest manifest = some_manifest();
  const std::string text = write_manifest(manifest);
  const Manifest parsed = parse_manifest("p", text);
  EXPECT_EQ(parsed.step, manifest.step);
  EXPECT_EQ(parsed.samples, manifest.samples);
  EXPECT_EQ(parsed.counters, manifest.counters);
  EXPECT_EQ(parsed.notes, manifest.notes);
  EXPECT_EQ(parsed.config, manifest.config);
  EXPECT_EQ(parsed.contents.tensors, manifest.contents.tensors);
  EXPECT_EQ(parsed.contents.files, manifest.contents.files);
  EXPECT_EQ(write_manifest(parsed), text);
  EXPECT_EQ(nlohmann::json::parse(text).at("step"), 1234) << "any reader of JSON can read it";
}

TEST(Manifest, no_bit_can_flip_and_no_byte_can_go) {
  const std::string text = write_manifest(some_manifest());
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      EXPECT_THAT(manifest_complaint(damaged), HasSubstr("damaged")) << at << ' ' << bit;
    }
    EXPECT_THAT(manifest_complaint(text.substr(0, at)), HasSubstr("damaged")) << at;
  }
  EXPECT_THAT(manifest_complaint(text + "\n"), HasSubstr("damaged"));
}

TEST(Manifest, what_makes_no_sense_is_refused) {
  struct Change {
    void (*change)(Manifest&);
    const char* says;
  };
  const Change changes[] = {
      {[](Manifest& m) { m.contents.tensors[0].boxes[1].box.offset[0] = 2; },
       "its element [2, 0] twice"},
      {[](Manifest& m) {
         m.contents.tensors[0].boxes[1].box = {{4, 0}, {1, 2}};
       },
       "its element [3, 0] nowhere"},
      {[](Manifest& m) { m.contents.tensors[0].boxes[1].box.extent[1] = 1; },
       "its element [3, 1] nowhere"},
      {[](Manifest& m) { m.contents.tensors[0].boxes.pop_back(); }, "its element [3, 0] nowhere"},
      {[](Manifest& m) { m.contents.tensors[0].boxes.clear(); }, "\"a\" lies nowhere"},
      {[](Manifest& m) { m.contents.tensors[0].boxes[1].box.offset[0] = 4; },
       "a box from 4 on of 2 along dimension 0, of which it has 5"},
      {[](Manifest& m) {
         m.contents.tensors[0].boxes[1].box.extent[0] = std::numeric_limits<std::int64_t>::max();
       },
       "along dimension 0, of which it has 5"},
      {[](Manifest& m) {
         m.contents.tensors[0].boxes[1].box = {{3, 0, 0}, {2, 1, 2}};
       },
       "2 dimensions, and a box of 3 and 3"},
      {[](Manifest& m) { m.contents.tensors[0].shape[0] = std::int64_t{1} << 62; },
       "more elements than a file can hold"},
      {[](Manifest& m) { m.contents.tensors[0].boxes[0].file = 2; }, "lies in file 2 of 2"},
      {[](Manifest& m) { m.contents.tensors[0].boxes[0].begin = 65; }, "beyond the end of f1"},
      {[](Manifest& m) { m.contents.tensors[0].boxes[0].begin = ~0ull; }, "beyond the end of f1"},
      {[](Manifest& m) { m.contents.tensors[0].shape[0] = -5; }, "an extent of -5"},
      {[](Manifest& m) { m.contents.tensors[1].dtype = "F31"; }, "no whole bytes of F31"},
      {[](Manifest& m) { m.contents.files[0].name = "../f"; }, "names no file of the folder"},
      {[](Manifest& m) { m.contents.files[0].record.blocks.clear(); }, "0 checksums for 1 blocks"},
  };
  for (const Change& change : changes) {
    Manifest manifest = some_manifest();
    change.change(manifest);
    EXPECT_THAT(manifest_complaint(write_manifest(manifest)), HasSubstr(change.says));
  }
}

TEST(Manifest, of_whole_rows_alone_is_what_older_versions_read) {
  const std::string text = write_manifest(some_manifest());
  EXPECT_THAT(text, testing::StartsWith("{\n\"format\":1,\n"));
  EXPECT_THAT(text,
              HasSubstr(R"("a":{"boxes":[[1,64,0,3],[0,64,3,2]],"dtype":"F32","shape":[5,2]})"));
  EXPECT_THAT(text, HasSubstr(R"("b":{"boxes":[[0,80,0,1]],"dtype":"BF16","shape":[]})"));
}

TEST(Manifest, says_offsets_and_extents_of_boxes_that_are_no_whole_rows) {
  Manifest manifest = some_manifest();
  manifest.contents.tensors[0].boxes = {{.file = 1, .begin = 64, .box = {{0, 0}, {3, 2}}},
                                        {.file = 0, .begin = 64, .box = {{3, 0}, {2, 1}}},
                                        {.file = 0, .begin = 72, .box = {{3, 1}, {2, 1}}}};
  const std::string text = write_manifest(manifest);
  EXPECT_THAT(text, testing::StartsWith("{\n\"format\":2,\n"));
  EXPECT_THAT(text, HasSubstr(R"("boxes":[[1,64,0,3],[0,64,[3,0],[2,1]],[0,72,[3,1],[2,1]]])"));
  EXPECT_EQ(parse_manifest("p", text).contents.tensors, manifest.contents.tensors);
}

TEST(Manifest, counters_that_are_no_numbers_are_not_written) {
  Manifest manifest = some_manifest();
  manifest.counters["loss_scale"] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(write_manifest(manifest), Error);
}

}  // namespace
}  // namespace sprat::fsdp
