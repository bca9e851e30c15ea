// States: short, equal, and refused where anything differs.
#include "io/order/stream_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "sprat/error.hpp"
#include "tests/unit/io/order/memory_table.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;

StreamOptions options_of(const char* kind, std::size_t sources = 1) {
  const auto table = std::make_shared<const MemoryTable>(
      std::string(kind) == "windows" ? token_files({500, 900})
                                     : sized_files({50, 90}, {.least = 1, .most = 90, .unit = 2}));
  SamplingOptions sampling{.kind = kind, .shuffle = Shuffle::chunks};
  sampling.chunk = 5;
  sampling.length = std::string(kind) == "records" ? 0 : 16;
  sampling.element_bytes = std::string(kind).starts_with("packed") ? 2 : 0;
  return {.sources = std::vector<StreamSource>(sources, {.table = table, .sampling = sampling}),
          .seed = 3};
}

/// What the state of one stream says to another.
std::string refusal(const StreamOptions& saved, const StreamOptions& own) {
  const SampleStream stream(saved);
  const std::string json =
      write_state(stream, {.position = {}, .skips = SkipList(stream.sources())});
  try {
    read_state(SampleStream(own), json);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("start without the state"));
    return error.what();
  }
  return "accepted";
}

std::string damage_of(const std::string& json, ErrorCode code = ErrorCode::unavailable) {
  try {
    read_state(SampleStream(options_of("records")), json);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(StreamState, comes_back_as_it_was_written) {
  const SampleStream stream(options_of("records", 2));
  StreamState state{.position = {.epoch = 7, .index = 99}, .skips = SkipList(2)};
  state.skips.add(0, {3, 9});
  state.skips.add(1, {139, 140});
  const std::string json = write_state(stream, state);
  const StreamState read = read_state(SampleStream(options_of("records", 2)), json);
  EXPECT_EQ(read.position, state.position);
  EXPECT_EQ(read.skips, state.skips);
  EXPECT_EQ(write_state(stream, read), json);
}

TEST(StreamState, tells_all_in_one_line) {
  const SampleStream stream(options_of("packed_whole"));
  EXPECT_EQ(
      write_state(stream, {.position = {.epoch = 1, .index = 2}, .skips = SkipList()}),
      R"({"epoch":1,"index":2,"seed":3,"skipped":[],"sources":["kind=packed_whole shuffle=chunks )"
      R"(chunk=5 length=16 element_bytes=2 weight=1 records=140 dataset=)" +
          fmt::format("{:016x}", options_of("packed_whole").sources[0].table->fingerprint()) +
          R"("],"version":1})");
}

TEST(StreamState, of_another_order_is_refused_with_what_differs) {
  struct Difference {
    const char* kind;
    std::function<void(StreamOptions&)> change;
    const char* message;
  };
  using Change = StreamOptions&;
  const std::vector<Difference> differences = {
      {"records", [](Change o) { o.seed = 4; }, "seed is 3 there and 4 here"},
      {"records", [](Change o) { o.sources[0].sampling = {}; },
       "chunk is 5 there and 0 here, shuffle is chunks there and full here"},
      {"records", [](Change o) { o.sources[0].sampling.chunk = 6; }, "chunk is 5 there and 6 here"},
      {"records", [](Change o) { o.sources[0].sampling.mixed_chunks = 3; },
       "mixed_chunks is 16 there and 3 here"},
      {"records", [](Change o) { o.sources[0].weight = 2; }, "weight is 1 there and 2 here"},
      {"records", [](Change o) { o.sources.resize(2, o.sources[0]); },
       "the state is of 1 sources, and here are 2"},
      {"records",
       [](Change o) {
         o.sources[0].table = std::make_shared<const MemoryTable>(sized_files({50, 91}, {}));
       },
       "records is 140 there and 141 here"},
      {"records",
       [](Change o) {
         o.sources[0].table = std::make_shared<const MemoryTable>(sized_files({90, 50}, {}));
       },
       "another source 0: dataset is "},
      {"windows", [](Change o) { o.sources[0].sampling.length = 8; },
       "length is 16 there and 8 here"},
      {"windows", [](Change o) { o.sources[0].sampling.across_files = false; },
       "across_files is yes there and no here"},
      {"packed_cut", [](Change o) { o.sources[0].sampling.element_bytes = 1; },
       "element_bytes is 2 there and 1 here"},
      {"packed_cut", [](Change o) { o.sources[0].sampling.kind = "packed_whole"; },
       "kind is packed_cut there and packed_whole here"},
      {"packed_whole", [](Change o) { o.sources[0].sampling.block = 99; },
       "block is 1048576 there and 99 here"},
  };
  for (const Difference& difference : differences) {
    const StreamOptions saved = options_of(difference.kind);
    StreamOptions own = saved;
    EXPECT_EQ(refusal(saved, own), "accepted");
    difference.change(own);
    EXPECT_THAT(refusal(saved, own), HasSubstr(difference.message));
  }
}

TEST(StreamState, is_below_one_kilobyte_whatever_there_is_to_say) {
  for (const std::size_t sources : {1u, 2u, 5u, 9u, 30u, 64u}) {
    const StreamOptions options = options_of("packed_whole", sources);
    const SampleStream stream(options);
    StreamState state{.position = {.epoch = ~std::uint64_t{0} / 4, .index = stream.samples() - 1},
                      .skips = SkipList(sources)};
    for (std::size_t s = 0; s < sources; ++s) {
      for (std::uint64_t record = 100 + s % 2; record < 139; record += 3) {
        state.skips.add(s, {record, record + 2});
      }
    }
    const std::string json = write_state(stream, state);
    EXPECT_LT(json.size(), 1024u) << json;
    const StreamState read = read_state(stream, json);
    EXPECT_EQ(read.position, state.position);
    EXPECT_EQ(read.skips.ranges(), std::min<std::size_t>(24, state.skips.ranges()));
    // Also where only digests are left, another order is refused.
    for (const std::size_t s : {std::size_t{0}, sources - 1}) {
      StreamOptions own = options;
      own.sources[s].sampling.length = 17;
      EXPECT_NE(refusal(options, own), "accepted") << sources << " sources";
    }
  }
}

TEST(StreamState, that_is_damaged_is_refused_with_what_is_wrong) {
  const SampleStream stream(options_of("records"));
  StreamState state{.position = {.epoch = 0, .index = 5}, .skips = SkipList()};
  state.skips.add(0, {3, 9});
  const std::string json = write_state(stream, state);
  EXPECT_EQ(damage_of(json), "accepted");
  const auto with = [&](const std::string& old, const std::string& now) {
    std::string changed = json;
    const std::size_t at = changed.find(old);
    EXPECT_NE(at, changed.npos) << old;
    return changed.replace(at, old.size(), now);
  };
  EXPECT_THAT(damage_of(""), HasSubstr("no JSON"));
  EXPECT_THAT(damage_of(json.substr(0, json.size() / 2)), HasSubstr("no JSON"));
  EXPECT_THAT(damage_of("[1]"), HasSubstr("no JSON object"));
  EXPECT_THAT(damage_of(std::string(2000, ' ')), HasSubstr("at most 1023 bytes"));
  EXPECT_THAT(damage_of(std::string(500, '[')), HasSubstr("nested"));
  EXPECT_THAT(damage_of(with("{\"epoch\":0", "{\"epoch\":0,\"epoch\":0")), HasSubstr("twice"));
  EXPECT_THAT(damage_of(with("\"index\":5", "\"index\":140")), HasSubstr("sample 140"));
  EXPECT_THAT(damage_of(with("\"index\":5", "\"index\":-5")), HasSubstr("\"index\""));
  EXPECT_THAT(damage_of(with("\"index\":5", "\"indices\":5")), HasSubstr("has no \"index\""));
  EXPECT_THAT(damage_of(with("[0,3,6]", "[0,3]")), HasSubstr("no ranges"));
  EXPECT_THAT(damage_of(with("[0,3,6]", "[0,3,\"x\"]")), HasSubstr("no number"));
  EXPECT_THAT(damage_of(with("[0,3,6]", "[1,3,6]")), HasSubstr("of source 1"));
  EXPECT_THAT(damage_of(with("[0,3,6]", "[0,138,3]")), HasSubstr("not there"));
  EXPECT_THAT(damage_of(with("[0,3,6]", "[0,18446744073709551615,6]")), HasSubstr("not there"));
  EXPECT_THAT(damage_of(with("\"version\":1", "\"version\":2"), ErrorCode::invalid_argument),
              HasSubstr("version 2, and this Sprat reads version 1"));
}

}  // namespace
}  // namespace sprat::io
