// Samples: what a step takes does not depend on the number of ranks, and nothing leaks from the
// end.
#include "train/data/batches.hpp"

#include <gtest/gtest.h>

#include <set>

#include "sprat/error.hpp"

namespace sprat::train {
namespace {

TrainConfig config() {
  TrainConfig config;
  config.model.context = 8;
  config.train.batch = 12;
  config.data.validation_share = 0.25;
  return config;
}

TokenizedText counting(std::size_t count) {
  std::vector<std::uint8_t> text(count);
  for (std::size_t i = 0; i < count; ++i) {
    text[i] = static_cast<std::uint8_t>(i % 251);
  }
  return TokenizedText(std::move(text));
}

TEST(Batches, a_step_is_the_same_however_many_ranks_and_micro_steps_share_it) {
  TrainConfig parted = config();
  for (const std::int64_t first : {0, 12, 84, 1205}) {
    const Batch whole = Batches(counting(2000), config()).training(first, 0, {0, 1});
    ASSERT_EQ(whole.inputs.size(), 12u * 8u);
    for (const auto& [ranks, micro_steps] : {std::pair{2, 1},
                                             {3, 1},
                                             {12, 1},
                                             {1, 3},
                                             {2, 2},
                                             {4, 3},
                                             {3, 4},
                                             {5, 1},
                                             {1, 5},
                                             {2, 4},
                                             {11, 1}}) {
      parted.sharding.micro_steps = micro_steps;
      const Batches batches(counting(2000), parted);
      Batch joined;
      for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
        for (int rank = 0; rank < ranks; ++rank) {
          const Batch part = batches.training(first, micro_step, {rank, ranks});
          joined.inputs.insert(joined.inputs.end(), part.inputs.begin(), part.inputs.end());
          joined.targets.insert(joined.targets.end(), part.targets.begin(), part.targets.end());
        }
      }
      EXPECT_EQ(joined.inputs, whole.inputs)
          << "from " << first << ", " << ranks << " ranks, " << micro_steps << " micro-steps";
      EXPECT_EQ(joined.targets, whole.targets)
          << "from " << first << ", " << ranks << " ranks, " << micro_steps << " micro-steps";
    }
  }
}

TEST(Batches, of_ranks_that_share_sequences_are_their_pieces_of_the_same_samples) {
  const Batches batches(counting(2000), config());
  const Batch whole = batches.training(12, 0, {.rank = 1, .ranks = 3});
  const Batch held_out = batches.validation(1, 8, {.rank = 1, .ranks = 3});
  ASSERT_EQ(whole.inputs.size(), 4u * 8u);
  const std::vector<std::vector<int>> positions[] = {{{0, 1, 6, 7}, {2, 3, 4, 5}},
                                                     {{0, 7}, {1, 6}, {2, 5}, {3, 4}}};
  for (const auto& of_ranks : positions) {
    const int ranks = static_cast<int>(of_ranks.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const BatchShare share{.rank = 1, .ranks = 3, .context_rank = rank, .context_ranks = ranks};
      const auto part_of = [&](const std::vector<std::int32_t>& tokens) {
        std::vector<std::int32_t> part;
        for (std::size_t sample = 0; sample < tokens.size(); sample += 8) {
          for (const int position : of_ranks[static_cast<std::size_t>(rank)]) {
            part.push_back(tokens[sample + static_cast<std::size_t>(position)]);
          }
        }
        return part;
      };
      const Batch part = batches.training(12, 0, share);
      EXPECT_EQ(part.inputs, part_of(whole.inputs)) << rank << " of " << ranks;
      EXPECT_EQ(part.targets, part_of(whole.targets)) << rank << " of " << ranks;
      EXPECT_EQ(batches.validation(1, 8, share).targets, part_of(held_out.targets));
    }
  }
}

TEST(Batches, parts_differ_by_one_sample_only_where_a_batch_does_not_divide) {
  for (const int parts : {1, 2, 3, 4, 5, 7, 12}) {
    int next = 0;
    for (int index = 0; index < parts; ++index) {
      const SampleRange part = part_of_batch(12, parts, index);
      EXPECT_EQ(part.first, next);
      EXPECT_EQ(part.count, 12 / parts + (index < 12 % parts ? 1 : 0)) << index << "/" << parts;
      next += part.count;
    }
    EXPECT_EQ(next, 12);
  }
}

TEST(Batches, micro_batches_of_all_ranks_are_numbered_once_in_either_order) {
  for (const auto& [ranks, microbatches] : {std::pair{1, 1}, {1, 8}, {2, 4}, {8, 1}, {3, 5}}) {
    for (const GradientOrder order : {GradientOrder::sequence, GradientOrder::tree}) {
      std::set<int> numbers;
      for (int rank = 0; rank < ranks; ++rank) {
        for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
          numbers.insert(global_microbatch(order, {{rank, ranks}, microbatches, microbatch}));
        }
      }
      EXPECT_EQ(static_cast<int>(numbers.size()), ranks * microbatches) << name(order);
      EXPECT_EQ(*numbers.rbegin(), ranks * microbatches - 1) << name(order);
    }
  }
}

TEST(Batches, of_a_tree_a_rank_has_micro_batches_next_to_each_other) {
  TrainConfig tree = config();
  tree.sharding.gradient_order = GradientOrder::tree;
  tree.sharding.micro_steps = 3;
  const Batch whole = Batches(counting(2000), config()).training(24, 0, {0, 1});
  const Batches batches(counting(2000), tree);
  Batch joined;
  for (int rank = 0; rank < 2; ++rank) {
    for (int micro_step = 0; micro_step < 3; ++micro_step) {
      const Batch part = batches.training(24, micro_step, {rank, 2});
      joined.inputs.insert(joined.inputs.end(), part.inputs.begin(), part.inputs.end());
    }
  }
  EXPECT_EQ(joined.inputs, whole.inputs);
}

TEST(Batches, targets_are_the_bytes_that_follow) {
  const Batches batches(counting(2000), config());
  for (const Batch& batch : {batches.training(36, 0, {0, 1}), batches.validation(0, 20, {0, 1})}) {
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      ASSERT_EQ(batch.targets[i], (batch.inputs[i] + 1) % 251) << i;
      if (i % 8 > 0) {
        ASSERT_EQ(batch.inputs[i], batch.targets[i - 1]) << i;
      }
    }
  }
}

TEST(Batches, training_never_sees_the_held_out_end) {
  std::vector<std::uint8_t> text(400, 'a');
  std::fill(text.begin() + 300, text.end(), std::uint8_t{'z'});
  const Batches batches(TokenizedText(text), config());
  EXPECT_EQ(batches.training_tokens(), 300u);
  for (std::int64_t step = 0; step < 50; ++step) {
    const Batch batch = batches.training(12 * step, 0, {0, 1});
    const std::set<std::int32_t> seen(batch.targets.begin(), batch.targets.end());
    ASSERT_EQ(seen, std::set<std::int32_t>{'a'}) << step;
  }
}

TEST(Batches, validation_covers_each_sample_once_over_all_ranks) {
  const Batches batches(counting(2000), config());
  const int all = batches.validation_samples(1'000'000);
  EXPECT_EQ(all, (500 - 1) / 8);
  for (const int samples : {1, 5, 12, 13, all}) {
    for (const int ranks : {1, 3, 4, 5}) {
      std::size_t tokens = 0;
      std::vector<std::int32_t> joined, expected;
      for (int index = 0; index < batches.cut().validation_batches(samples, ranks); ++index) {
        for (int rank = 0; rank < ranks; ++rank) {
          const Batch part = batches.validation(index, samples, {rank, ranks});
          joined.insert(joined.end(), part.inputs.begin(), part.inputs.end());
          tokens += part.targets.size();
        }
      }
      batches.text().copy(1500, static_cast<std::size_t>(samples) * 8, expected);
      EXPECT_EQ(joined, expected) << samples << "/" << ranks;
      EXPECT_EQ(tokens, expected.size());
    }
  }
}

TEST(Batches, parts_of_a_share_have_its_samples_in_order) {
  TrainConfig shared = config();
  shared.sharding.micro_steps = 2;
  const Batches batches(counting(2000), shared);
  const auto expect_parts = [](const auto& read) {
    const Batch whole = read(BatchShare{.rank = 1, .ranks = 2});
    for (const int parts : {2, 3, 4}) {
      Batch joined;
      for (int part = 0; part < parts; ++part) {
        const Batch own = read(BatchShare{.rank = 1, .ranks = 2, .part = part, .parts = parts});
        EXPECT_EQ(own.samples, whole.samples) << part << '/' << parts;
        joined.inputs.insert(joined.inputs.end(), own.inputs.begin(), own.inputs.end());
        joined.targets.insert(joined.targets.end(), own.targets.begin(), own.targets.end());
      }
      EXPECT_EQ(joined.inputs, whole.inputs) << parts;
      EXPECT_EQ(joined.targets, whole.targets) << parts;
    }
    return whole.samples;
  };
  EXPECT_EQ(expect_parts([&](BatchShare share) { return batches.training(12, 1, share); }), 3);
  // Of eleven samples the first batch takes six, so this rank has two in the second, and then none.
  EXPECT_EQ(expect_parts([&](BatchShare share) { return batches.validation(0, 11, share); }), 3);
  EXPECT_EQ(expect_parts([&](BatchShare share) { return batches.validation(1, 11, share); }), 2);
  EXPECT_EQ(expect_parts([&](BatchShare share) { return batches.validation(2, 11, share); }), 0);
}

TEST(Batches, a_text_too_short_is_refused_with_the_numbers) {
  try {
    Batches(counting(30), config());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("30 bytes"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("context 8"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sprat::train
