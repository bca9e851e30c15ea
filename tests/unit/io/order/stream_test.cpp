// A run's samples: whatever stops it, and however many ranks go on, they are those of a run that
// never stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "io/order/stream_state.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/order/sampling_cases.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;

struct StreamCase {
  std::string name;
  StreamOptions options;

  SampleStream make() const { return SampleStream(options); }
};

/// Every sampling alone, and all of them mixed.
std::vector<StreamCase> stream_cases() {
  std::vector<StreamCase> cases;
  StreamOptions mixed{.sources = {}, .seed = 21};
  double weight = 0.3;
  for (const SamplingCase& one : sampling_cases()) {
    const StreamSource source{.table = one.table, .sampling = one.options, .weight = weight};
    cases.push_back({one.name, {.sources = {source}, .seed = 21}});
    mixed.sources.push_back(source);
    weight += 0.7;
  }
  cases.push_back({"mixture", mixed});
  return cases;
}

/// Records of each source that are damaged.
SkipList damage(const SampleStream& stream) {
  SkipList damaged(stream.sources());
  for (std::size_t s = 0; s < stream.sources(); ++s) {
    for (std::uint64_t record = 3; record + 2 < stream.records(s); record += 83) {
      damaged.add(s, {record, record + 1 + record % 2});
    }
  }
  return damaged;
}

/// What a rank reads: it asks, finds that a record is damaged, notes it in `known`, and asks again.
std::uint64_t read_sample(const StreamCase& one, const SampleStream& stream,
                          const StreamPosition& position, SkipList& known) {
  const SkipList damaged = damage(stream);
  for (;;) {
    const Sample sample = stream.sample(position, known);
    const auto& table = dynamic_cast<const MemoryTable&>(*one.options.sources[sample.source].table);
    bool sound = true;
    for (const std::uint64_t record : records_of(table, sample)) {
      if (touches({record}, damaged.of(sample.source))) {
        known.add(sample.source, {record, record + 1});
        sound = false;
      }
    }
    if (sound) {
      return hash_of(sample);
    }
  }
}

constexpr std::uint64_t batch_samples = 13;

/// What ranks have read of batches [0, count): hashes by global index, and what all have found.
struct BatchesRead {
  std::vector<std::uint64_t> hashes;
  SkipList known;
};

BatchesRead read_batches(const StreamCase& one, const StreamState& from, std::uint64_t count,
                         std::uint64_t ranks) {
  BatchesRead read{.hashes = std::vector<std::uint64_t>(count * batch_samples),
                   .known = from.skips};
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    // A stream and a list of the rank's own, as a process has them.
    const SampleStream stream = one.make();
    SkipList known = from.skips;
    const GlobalBatches batches(
        {.epoch_samples = stream.samples(), .batch = batch_samples, .start = from.position});
    const BatchSlots slots = batches.share(rank, ranks);
    for (std::uint64_t batch = 0; batch < count; ++batch) {
      for (std::uint64_t slot = slots.begin; slot < slots.end; ++slot) {
        read.hashes[batch * batch_samples + slot] =
            read_sample(one, stream, batches.sample(batch, slot), known);
      }
    }
    read.known.merge(known);
  }
  return read;
}

TEST(SampleStream, any_number_of_ranks_reads_the_same_batches) {
  for (const StreamCase& one : stream_cases()) {
    const SampleStream stream = one.make();
    const StreamState begin{.position = {}, .skips = SkipList(stream.sources())};
    const BatchesRead alone = read_batches(one, begin, 30, 1);
    EXPECT_GT(alone.known.records(), 0u) << one.name << " met no damaged record";
    for (const std::uint64_t ranks : {2u, 3u, 4u, 5u, 8u, 16u}) {
      const BatchesRead read = read_batches(one, begin, 30, ranks);
      ASSERT_EQ(read.hashes, alone.hashes) << one.name << ", ranks " << ranks;
    }
  }
}

TEST(SampleStream, a_run_that_was_killed_goes_on_at_any_number_of_ranks) {
  for (const StreamCase& one : stream_cases()) {
    const SampleStream stream = one.make();
    constexpr std::uint64_t all = 60;
    const StreamState begin{.position = {}, .skips = SkipList(stream.sources())};
    const BatchesRead whole = read_batches(one, begin, all, 1);
    const GlobalBatches batches({.epoch_samples = stream.samples(), .batch = batch_samples});
    const std::uint64_t sizes[] = {1, 2, 3, 4, 5, 8, 16};
    for (std::uint64_t kill = 0; kill < 21; ++kill) {
      const std::uint64_t stopped = mix_bits(kill + 1) % (all - 5);
      // The mixture finds more damage than a state can say; it forgets some, and finds it again.
      const std::string saved =
          write_state(stream, {.position = batches.position(stopped),
                               .skips = read_batches(one, begin, stopped, 1).known});
      const StreamState state = read_state(one.make(), saved);
      const BatchesRead rest = read_batches(one, state, 5, sizes[kill % 7]);
      ASSERT_TRUE(std::ranges::equal(
          rest.hashes, std::span(whole.hashes).subspan(stopped * batch_samples, 5 * batch_samples)))
          << one.name << ", killed before batch " << stopped << ", then ranks " << sizes[kill % 7];
    }
  }
}

TEST(SampleStream, each_source_gives_its_epochs_whole) {
  const StreamCase mixture = stream_cases().back();
  const SampleStream stream = mixture.make();
  std::vector<std::map<std::uint64_t, int>> seen(stream.sources());
  const SkipList none(stream.sources());
  for (std::uint64_t g = 0; g < 40'000; ++g) {
    const Sample sample =
        stream.sample({.epoch = g / stream.samples(), .index = g % stream.samples()}, none);
    if (mixture.options.sources[sample.source].sampling.kind == "records") {
      ++seen[sample.source][sample.record];
    }
  }
  for (std::size_t s = 0; s < stream.sources(); ++s) {
    if (seen[s].empty()) {
      continue;
    }
    EXPECT_EQ(seen[s].size(), stream.records(s)) << "source " << s;
    const auto [least, most] = std::ranges::minmax_element(
        seen[s], {}, [](const auto& counted) { return counted.second; });
    // The mixture's blocks of 64 may take samples of an epoch before the last of the one before.
    EXPECT_LE(most->second - least->second, 2) << "source " << s;
  }
}

TEST(SampleStream, sources_of_equal_size_are_not_visited_in_step) {
  const auto table = std::make_shared<const MemoryTable>(sized_files({200}, {}));
  const SampleStream stream(
      {.sources = {{.table = table, .sampling = {}}, {.table = table, .sampling = {}}}, .seed = 4});
  const SkipList none(2);
  // After two whole blocks of the mixture each source has given its first 64 samples. Of 200
  // records visited in one order by both they would be the same ones.
  std::set<std::uint64_t> records[2];
  for (std::uint64_t i = 0; i < 128; ++i) {
    const Sample sample = stream.sample({.index = i}, none);
    records[sample.source].insert(sample.record);
  }
  EXPECT_EQ(records[0].size(), 64u);
  EXPECT_EQ(records[1].size(), 64u);
  EXPECT_NE(records[0], records[1]);
}

TEST(SampleStream, names_the_source_that_is_wrong) {
  const auto table = std::make_shared<const MemoryTable>(sized_files({200}, {}));
  try {
    SampleStream({.sources = {{.table = table, .sampling = {}},
                              {.table = table, .sampling = {.kind = "windows", .length = 8}}}});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("source 1: windows are cut from tokens of one size"));
  }
  EXPECT_THROW(SampleStream({.sources = {}}), Error);
  const SampleStream one({.sources = {{.table = table, .sampling = {}}}});
  EXPECT_THROW(one.sample({.index = 200}, SkipList()), Error);
  EXPECT_THROW(one.sample({.epoch = ~std::uint64_t{0}}, SkipList()), Error);
  EXPECT_THROW(one.sample({}, SkipList(2)), Error);
}

}  // namespace
}  // namespace sprat::io
