// Options as JSON: every key, and what is said of wrong ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "sprat/data.hpp"
#include "sprat/error.hpp"

namespace sprat {
namespace {

std::string refusal(const std::string& json) {
  try {
    parse_loader_options(json);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "none";
}

std::string with(const std::string& more) {
  return R"({"sources": [{"paths": ["a.tar"]}])" + more + "}";
}

TEST(LoaderOptionsText, every_key_is_read) {
  const LoaderOptions options = parse_loader_options(R"({
    "sources": [{"paths": ["a.bin", "b.bin"], "format": "tokens", "token_type": "u16", "weight": 2,
                 "separator": 50256},
                {"paths": ["c.tar"]}],
    "batch": 64, "rank": 1, "ranks": 4, "slots": [[0, 8], [32, 40]],
    "order": {"seed": 7, "samples": "packed_whole", "length": 128, "shuffle": "chunks", "chunk": 9,
              "mixed_chunks": 3, "epochs": 2, "remainder": "pad"},
    "reading": {"memory_bytes": 1000000, "reader": "pool", "io_threads": 3, "decode_threads": 2,
                "corrupt": "skip", "timeout_ms": 1500, "fsx": "SCRATCH_2:200:1200"}})");
  ASSERT_EQ(options.sources.size(), 2u);
  EXPECT_THAT(options.sources[0].paths, testing::ElementsAre("a.bin", "b.bin"));
  EXPECT_EQ(options.sources[0].format, "tokens");
  EXPECT_EQ(options.sources[0].token_type, "u16");
  EXPECT_EQ(options.sources[0].weight, 2);
  EXPECT_EQ(options.sources[0].separator, 50256u);
  EXPECT_FALSE(options.sources[1].separator);
  EXPECT_EQ(options.sources[1].format, "auto");
  EXPECT_EQ(options.batch, 64u);
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.ranks, 4);
  ASSERT_EQ(options.slots.size(), 2u);
  EXPECT_EQ(options.slots[1].begin, 32u);
  EXPECT_EQ(options.slots[1].end, 40u);
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(options.samples, SampleKind::packed_whole);
  EXPECT_EQ(options.length, 128u);
  EXPECT_EQ(options.shuffle, Shuffle::chunks);
  EXPECT_EQ(options.chunk, 9u);
  EXPECT_EQ(options.mixed_chunks, 3u);
  EXPECT_EQ(options.epochs, 2u);
  EXPECT_EQ(options.remainder, Remainder::pad);
  EXPECT_EQ(options.memory_bytes, 1000000u);
  EXPECT_EQ(options.reader, "pool");
  EXPECT_EQ(options.io_threads, 3);
  EXPECT_EQ(options.decode_threads, 2);
  EXPECT_EQ(options.corrupt, Corrupt::skip);
  EXPECT_EQ(options.timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(options.fsx, "SCRATCH_2:200:1200");
}

TEST(LoaderOptionsText, names_what_is_wrong_and_what_there_is) {
  EXPECT_THAT(refusal("{"), testing::HasSubstr("no JSON"));
  EXPECT_THAT(refusal("{}"), testing::HasSubstr("loader.sources is missing"));
  EXPECT_THAT(refusal(R"({"sources": [{}]})"), testing::HasSubstr("loader.sources[0].paths"));
  EXPECT_THAT(refusal(R"({"sources": [{"paths": ["a"], "weight": 0}]})"),
              testing::HasSubstr("weight is 0"));
  EXPECT_THAT(refusal(with(R"(, "batches": 3)")), testing::HasSubstr("did you mean \"batch\""));
  EXPECT_THAT(refusal(with(R"(, "batch": -1)")), testing::HasSubstr("loader.batch is -1"));
  EXPECT_THAT(refusal(with(R"(, "batch": 1, "batch": 2)")), testing::HasSubstr("\"batch\" twice"));
  EXPECT_THAT(refusal(with(R"(, "order": {"shuffle": "some"})")),
              testing::HasSubstr("\"full\", \"chunks\", \"none\""));
  EXPECT_THAT(refusal(with(R"(, "order": 3)")), testing::HasSubstr("it is a section"));
  for (const char* slots : {"[3]", "[[3]]", "[[3, -1]]", "3", "[[1, 2, 3]]"}) {
    EXPECT_THAT(refusal(with(std::string(R"(, "slots": )") + slots)),
                testing::HasSubstr("it is a list of pairs"))
        << slots;
  }
  EXPECT_THAT(refusal(R"({"sources": [{"paths": ["a"], "separator": -1}]})"),
              testing::HasSubstr("loader.sources[0].separator is -1"));
}

TEST(LoaderOptionsText, is_named_as_whoever_reads_it_says) {
  try {
    parse_loader_options(R"({"sources": [{"paths": ["a"], "weight": "x"}]})", "data");
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("data.sources[0].weight is \"x\""));
  }
}

}  // namespace
}  // namespace sprat
