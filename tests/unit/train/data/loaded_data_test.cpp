// Shards that a loader reads: the same samples as of a text that is held, whoever shares them.
#include "train/data/loaded_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "sprat/error.hpp"
#include "tests/unit/io/temporary_folder.hpp"
#include "train/data/text_data.hpp"

namespace sprat::train {
namespace {

using testing::HasSubstr;

constexpr std::size_t text_tokens = 2000, held_out = 500;

std::vector<std::uint8_t> text_bytes() {
  std::vector<std::uint8_t> bytes(text_tokens);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] = static_cast<std::uint8_t>(at * at % 251);
  }
  return bytes;
}

/// A text, and shards that hold its tokens: two to learn, one that is held out.
class LoadedSamples : public testing::Test {
 protected:
  template <class Number>
  void write_shards() const {
    const std::vector<std::uint8_t> bytes = text_bytes();
    const std::vector<Number> tokens(bytes.begin(), bytes.end());
    write("learn0.bin", std::span(tokens).first(700));
    write("learn1.bin", std::span(tokens).subspan(700, text_tokens - held_out - 700));
    write("held.bin", std::span(tokens).last(held_out));
  }
  template <class Number>
  void write(const std::string& name, std::span<const Number> tokens) const {
    std::ofstream(folder_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()),
               static_cast<std::streamsize>(tokens.size_bytes()));
  }

  DataSource source(const std::string& name, const std::string& type) const {
    return {.paths = {folder_ / name}, .format = "tokens", .token_type = type};
  }
  TrainConfig config(const std::string& type = "u8", int micro_steps = 1,
                     GradientOrder order = GradientOrder::sequence, int batch = 12) const {
    TrainConfig config;
    config.model.context = 8;
    config.model.vocabulary = 256;
    config.train.batch = batch;
    config.sharding.micro_steps = micro_steps;
    config.sharding.gradient_order = order;
    config.data.validation_share = double{held_out} / text_tokens;
    config.data.loader.sources = {source("learn*.bin", type)};
    config.data.validation_sources = {source("held.bin", type)};
    return config;
  }
  static LoadedData loaded(const TrainConfig& config, BatchShare share = {}) {
    return {config, std::nullopt, share};
  }
  static TextData held(const TrainConfig& config, BatchShare share = {}) {
    return {Batches(TokenizedText(text_bytes()), config), share};
  }

  const TemporaryFolder folder_;
};

std::string samples_text(const std::vector<Batch>& batches) {
  std::string told;
  for (const Batch& batch : batches) {
    told += std::to_string(batch.samples) + " samples:";
    for (const auto* tokens : {&batch.inputs, &batch.targets}) {
      for (const std::int32_t token : *tokens) {
        told += " " + std::to_string(token);
      }
      told += " |";
    }
  }
  return told;
}

std::vector<Batch> validation_of(TrainingData& data, const BatchCut& cut, int samples, int ranks) {
  std::vector<Batch> batches;
  // One behind the last, as micro-batches may ask for it.
  for (int index = 0; index <= cut.validation_batches(samples, ranks); ++index) {
    batches.push_back(data.validation(index, samples));
  }
  return batches;
}

struct SharedRun {
  BatchShare share;
  int micro_steps = 1;
  GradientOrder order = GradientOrder::sequence;
  int batch = 12;
};

TEST_F(LoadedSamples, are_those_of_the_text_for_everyone_who_shares_them) {
  write_shards<std::uint8_t>();
  const SharedRun runs[] = {
      {.share = {}},
      {.share = {.rank = 1, .ranks = 3}},
      {.share = {.rank = 3, .ranks = 4}, .batch = 11},
      {.share = {.rank = 1, .ranks = 2}, .micro_steps = 3},
      {.share = {.rank = 1, .ranks = 2}, .micro_steps = 3, .order = GradientOrder::tree},
      {.share = {.rank = 1, .ranks = 2}, .micro_steps = 4, .batch = 13},
      {.share = {.rank = 1, .ranks = 2, .part = 1, .parts = 2}, .micro_steps = 3},
      {.share = {.rank = 0, .ranks = 2, .part = 1, .parts = 2},
       .micro_steps = 3,
       .order = GradientOrder::tree},
      {.share = {.rank = 1, .ranks = 2, .context_rank = 1, .context_ranks = 2}, .micro_steps = 2}};
  for (const SharedRun& run : runs) {
    SCOPED_TRACE(testing::Message() << run.share.rank << " of " << run.share.ranks << ", part "
                                    << run.share.part << ", " << run.micro_steps << " micro-steps");
    const TrainConfig of = config("u8", run.micro_steps, run.order, run.batch);
    LoadedData loader = loaded(of, run.share);
    TextData text = held(of, run.share);
    EXPECT_EQ(loader.samples_per_epoch(), text.samples_per_epoch());
    EXPECT_EQ(loader.validation_samples(1000), text.validation_samples(1000));
    // Into the third epoch: 186 samples are one.
    for (int step = 0; step < 40; ++step) {
      const std::int64_t first = std::int64_t{step} * run.batch;
      ASSERT_EQ(samples_text(loader.step(first)), samples_text(text.step(first))) << step;
      if (step % 15 == 0) {
        for (const int samples : {17, 61}) {
          const BatchCut cut(of);
          ASSERT_EQ(samples_text(validation_of(loader, cut, samples, run.share.ranks)),
                    samples_text(validation_of(text, cut, samples, run.share.ranks)))
              << step;
        }
      }
    }
  }
}

TEST_F(LoadedSamples, go_on_where_a_run_of_other_ranks_stopped) {
  write_shards<std::uint16_t>();
  const TrainConfig of = config("u16");
  LoadedData first = loaded(of, {.rank = 1, .ranks = 2});
  for (int step = 0; step < 20; ++step) {
    first.step(step * 12);
  }
  const TrainingState saved{.step = 20, .samples = 240, .notes = first.notes()};
  LoadedData other = loaded(of, {.rank = 2, .ranks = 4});
  other.resume(saved);
  LoadedData never_stopped = loaded(of, {.rank = 2, .ranks = 4});
  for (int step = 0; step < 30; ++step) {
    const std::string expected = samples_text(never_stopped.step(step * 12));
    if (step >= 20) {
      EXPECT_EQ(samples_text(other.step(step * 12)), expected) << step;
    }
  }
  LoadedData larger = loaded(config("u16", 1, GradientOrder::sequence, 24));
  larger.resume(saved);
  LoadedData two_steps = loaded(of);
  two_steps.resume(saved);
  const std::vector<Batch> whole = larger.step(240);
  const std::vector<Batch> one = two_steps.step(240), two = two_steps.step(252);
  EXPECT_EQ(std::vector(whole[0].inputs.begin() + 96, whole[0].inputs.end()), two[0].inputs);
  EXPECT_EQ(std::vector(whole[0].inputs.begin(), whole[0].inputs.begin() + 96), one[0].inputs);
}

template <class Body>
std::string refusal_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST_F(LoadedSamples, of_other_data_are_refused_where_a_run_goes_on) {
  write_shards<std::uint16_t>();
  LoadedData data = loaded(config("u16"));
  const TrainingState saved{.step = 0, .samples = 0, .notes = data.notes()};
  TrainConfig longer = config("u16");
  longer.model.context = 16;
  EXPECT_THAT(
      refusal_of([&] { loaded(longer).resume(saved); }),
      testing::AllOf(HasSubstr("data.sources: "), HasSubstr("length"), HasSubstr("--start")));
  EXPECT_THAT(refusal_of([&] { data.resume({.step = 3, .samples = 36, .notes = {}}); }),
              HasSubstr("no place in data.sources"));
  EXPECT_THAT(refusal_of([&] { held(config()).resume(saved); }), HasSubstr("read data.sources"));
}

TEST_F(LoadedSamples, with_a_token_that_the_model_does_not_know_are_refused) {
  write_shards<std::uint16_t>();
  TrainConfig of = config("u16");
  of.model.vocabulary = 249;  // the text has 249, too
  LoadedData data = loaded(of);
  EXPECT_THAT(refusal_of([&] {
                for (int step = 0; step < 20; ++step) {
                  data.step(step * 12);
                }
              }),
              testing::AllOf(HasSubstr("hold the token 249"), HasSubstr("vocabulary is 249"),
                             HasSubstr("learn*.bin")));
}

TEST_F(LoadedSamples, that_are_not_there_are_named_by_key_and_file) {
  write_shards<std::uint8_t>();
  TrainConfig of = config();
  of.data.validation_sources[0].paths = {"/nowhere/held.bin"};
  EXPECT_THAT(
      refusal_of([&] { loaded(of); }),
      testing::AllOf(HasSubstr("data.validation.sources: "), HasSubstr("/nowhere/held.bin")));
  of = config("");
  EXPECT_THAT(refusal_of([&] { loaded(of); }),
              testing::AllOf(HasSubstr("data.sources: "), HasSubstr("type of its tokens")));
}

TEST_F(LoadedSamples, of_a_file_that_changed_are_named_by_key_and_file) {
  write_shards<std::uint16_t>();
  loaded(config("u16"));  // indexes
  for (const char* name : {"learn0.bin", "held.bin"}) {
    std::ofstream(folder_ / name, std::ios::app) << "more";
  }
  LoadedData data = loaded(config("u16"));
  EXPECT_THAT(refusal_of([&] {
                for (int step = 0; step < 20; ++step) {
                  data.step(step * 12);
                }
              }),
              testing::AllOf(HasSubstr("data.sources: "), HasSubstr("learn0.bin has 1404 bytes")));
  EXPECT_THAT(
      refusal_of([&] { data.validation(0, 1); }),
      testing::AllOf(HasSubstr("data.validation.sources: "), HasSubstr("held.bin has 1004 bytes")));
}

TEST_F(LoadedSamples, have_a_budget_of_memory_that_a_few_batches_fit_into) {
  TrainConfig of = config();
  RankMemory memory;
  write_shards<std::uint8_t>();
  loaded(of).count_memory(memory);
  EXPECT_EQ(memory.read_ahead, (std::size_t{64} << 20) + (std::size_t{16} << 20));
  of.data.loader.memory_bytes = 8 << 20;
  of.train.batch = 100000;  // 7.2 MB in the widest type
  const LoadedOptions options = loaded_options(of, {});
  EXPECT_EQ(options.training.memory_bytes, std::uint64_t{8} << 20) << "as it was given";
  EXPECT_EQ(options.validation.memory_bytes, 100000u * 9 * 8);
  of.data.loader.memory_bytes = 0;
  EXPECT_EQ(loaded_options(of, {}).training.memory_bytes, std::uint64_t{64} << 20);
  of.train.batch = 1000000;
  EXPECT_EQ(loaded_options(of, {}).training.memory_bytes, 8u * 1000000 * 9 * 8);
}

TEST_F(LoadedSamples, tell_how_long_they_were_waited_for_and_what_limits_them) {
  write_shards<std::uint8_t>();
  LoadedData data = loaded(config());
  EXPECT_EQ(data.seconds_waited(), 0);
  data.step(0);
  EXPECT_GT(data.seconds_waited(), 0);
  EXPECT_THAT(data.limit(), HasSubstr("samples/s"));
  EXPECT_THAT(data.about(),
              testing::AllOf(HasSubstr("186 samples of 8 tokens to learn, 62 held out"),
                             HasSubstr("reads from")));
}

}  // namespace
}  // namespace sprat::train
