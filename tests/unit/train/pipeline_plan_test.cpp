// From a configuration and a number of ranks to what each rank does: what does not go together is
// one sentence, and what does is whole.
#include "train/pipeline_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "fsdp/plan/visits.hpp"
#include "mp/partition/partition_file.hpp"
#include "sprat/error.hpp"
#include "sprat/partition.hpp"

namespace sprat::train {
namespace {

using testing::HasSubstr;

/// Four blocks, so six layers; batches of 32.
TrainConfig planned_config(const std::string& parallel, const std::string& train = "") {
  return parse_train_config(R"({"model": {"layers": 4, "width": 16, "heads": 2, "context": 16},
      "data": {"files": ["a"]}, "train": {"batch": 32)" +
                                train + R"(}, "parallel": {)" + parallel + "}}",
                            "test.json");
}

std::string plan_refusal(const TrainConfig& config, int ranks) {
  try {
    plan_pipeline(config, ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(PipelinePlan, gives_tensor_ranks_the_same_samples_and_one_of_them_the_loss) {
  const TrainConfig config =
      planned_config(R"("tensor_parallel_degree": 2, "pipeline_parallel_degree": 2)");
  const PipelinePlan plan = plan_pipeline(config, 8);
  int tellers = 0;
  for (int rank = 0; rank < 8; ++rank) {
    const RankPlan mine = plan_of_rank(config, plan, rank);
    EXPECT_EQ(mine.share.rank, rank / 4);
    EXPECT_EQ(mine.share.ranks, 2);
    EXPECT_EQ(mine.share.parts, 1);
    EXPECT_EQ(mine.placement.tensor.degree, 2);
    EXPECT_EQ(mine.placement.tensor_rank, mine.coordinate.tensor);
    tellers += mine.tells_loss ? 1 : 0;
  }
  EXPECT_EQ(tellers, 2);
}

TEST(PipelinePlan, gives_tensor_ranks_parts_of_the_samples_where_they_read_their_own) {
  const TrainConfig config = planned_config(
      R"("tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "prescaled_batch": false)");
  const PipelinePlan plan = plan_pipeline(config, 8);
  for (int rank = 0; rank < 8; ++rank) {
    const RankPlan mine = plan_of_rank(config, plan, rank);
    EXPECT_EQ(mine.share.rank, rank / 4);
    EXPECT_EQ(mine.share.part, mine.coordinate.tensor);
    EXPECT_EQ(mine.share.parts, 2);
  }
  EXPECT_THAT(pipeline_text(config, plan),
              HasSubstr("cut among 2 ranks, optimize \"memory\", each reads its own samples\n"));
}

TEST(PipelinePlan, asks_nothing_of_the_batch_where_layers_are_not_cut) {
  EXPECT_EQ(plan_refusal(planned_config(R"("prescaled_batch": false, "microbatches": 3)"), 2),
            "accepted");
}

TEST(PipelinePlan, gives_ranks_that_share_sequences_the_same_samples_and_each_its_loss) {
  const TrainConfig config = planned_config(
      R"("context_parallel_degree": 2, "hybrid_shard_degree": 4, "pipeline_parallel_degree": 2)");
  const PipelinePlan plan = plan_pipeline(config, 16);
  EXPECT_EQ(plan.layout.data_shares(), 4);
  int tellers = 0;
  for (int rank = 0; rank < 16; ++rank) {
    const RankPlan mine = plan_of_rank(config, plan, rank);
    EXPECT_EQ(mine.share.rank, rank / 4);
    EXPECT_EQ(mine.placement.context_degree, 2);
    EXPECT_EQ(mine.placement.context_rank, mine.coordinate.context);
    tellers += mine.tells_loss ? 1 : 0;
  }
  EXPECT_EQ(tellers, 8);  // the last stage of each
  EXPECT_THAT(pipeline_text(config, plan),
              HasSubstr("sequences are cut among 2 ranks, cp_comm_type \"p2p\"\n"));
}

TEST(PipelinePlan, refuses_in_one_sentence_with_values_and_what_works) {
  const struct {
    int ranks;
    const char* parallel;
    const char* said;
    const char* train = "";
  } cases[] = {
      {6, R"("pipeline_parallel_degree": 4)",
       "parallel.pipeline_parallel_degree 4 does not divide the 6 ranks; take a divisor of 6, or 8 "
       "ranks"},
      {3, R"("hybrid_shard_degree": 2)",
       "parallel.hybrid_shard_degree 2 does not divide the 3 ranks; take a divisor of 3, or 0"},
      {8, R"("pipeline_parallel_degree": 2, "hybrid_shard_degree": 8)",
       "parallel.hybrid_shard_degree 8 does not divide the 4 data ranks, which 8 ranks leave in "
       "pipelines of 2; take a divisor of 4"},
      {3, R"("tensor_parallel_degree": 2)",
       "parallel.pipeline_parallel_degree 1 x parallel.tensor_parallel_degree 2 do not divide the "
       "3 "
       "ranks; take a divisor of 3, or 4 ranks"},
      {8, R"("tensor_parallel_degree": 2, "hybrid_shard_degree": 8)",
       "parallel.hybrid_shard_degree 8 does not divide the 4 data ranks, which 8 ranks leave in "
       "models of 2; take a divisor of 4"},
      {4, R"("context_parallel_degree": 3)",
       "parallel.context_parallel_degree 3 does not divide the 4 data ranks, which share "
       "parameters; take a divisor of 4, or 6 data ranks"},
      {8, R"("context_parallel_degree": 4, "hybrid_shard_degree": 2, "tensor_parallel_degree": 2)",
       "parallel.context_parallel_degree 4 does not divide the 2 ranks of "
       "parallel.hybrid_shard_degree, which share parameters; take a divisor of 2, or 4 as "
       "parallel.hybrid_shard_degree"},
      {5, R"("context_parallel_degree": 5)",
       "model.context 16 and parallel.context_parallel_degree 5: sequences of 16 tokens are not "
       "cut into 10 equal chunks, two for each of 5 context parallel ranks; the nearest length "
       "that is, is 20"},
      {8, R"("context_parallel_degree": 2, "microbatches": 16)",
       "train.batch 32 has fewer samples than there are parts, 4 groups that share sequences x 16 "
       "micro-batches"},
      {8, R"("pipeline_parallel_degree": 8)",
       "parallel.pipeline_parallel_degree 8 makes 8 stages, and the model has 6 layers (the "
       "embedding, 4 blocks, the head); take at most 6 stages, or model.layers 6"},
      {4, R"("microbatches": 16)",
       "train.batch 32 has fewer samples than there are parts, 4 data ranks x 16 micro-batches; "
       "take 64 or more, or fewer parallel.microbatches"},
      {4, R"("tensor_parallel_degree": 2, "prescaled_batch": false, "microbatches": 3)",
       "parallel.prescaled_batch is false, so each tensor rank reads as many samples of its own, "
       "and train.batch 32 is no multiple of 12, 2 data ranks x 3 micro-batches x "
       "parallel.tensor_parallel_degree 2; take 24 or 36, or prescaled_batch true"},
      {4, R"("tensor_parallel_degree": 2, "prescaled_batch": false, "microbatches": 16)",
       "train.batch 32 is no multiple of 64, 2 data ranks x 16 micro-batches x "
       "parallel.tensor_parallel_degree 2; take 64, or prescaled_batch true"},
      {2, "",
       "train.batch 1000000000 gives each rank 8000000000 tokens of model.context 16 at once",
       R"(, "micro_steps": 1)"},
      {2, R"("pipeline": "pipedream")",
       "parallel.pipeline is \"pipedream\"; it is one of simple, dualpipe_v, gpipe"},
      {4,
       R"("pipeline_parallel_degree": 4, "pipeline": "simple", "microbatches": 8,
          "active_microbatches": 2)",
       "parallel.pipeline: gpipe with 4 ranks and 8 micro-batches holds up to 8 of them"},
      {2, R"("pipeline_parallel_degree": 2, "pipeline": "1f1b", "stages_per_rank": 2)",
       "parallel.pipeline: 1f1b has 1 stage a rank, not 2"},
      {2, R"("pipeline_parallel_degree": 2, "partition": ["embedding"])",
       "parallel.partition names 1 first layers and there are 2 stages; name one for each"},
      {2, R"("pipeline_parallel_degree": 2, "partition": ["h.0", "h.1"])",
       "parallel.partition begins with \"h.0\"; the first stage begins with \"embedding\""},
      {3, R"("pipeline_parallel_degree": 3, "partition": ["embedding", "h.2", "h.1"])",
       "parallel.partition names \"h.1\" behind \"h.2\"; stages follow each other as layers do"},
      {2, R"("pipeline_parallel_degree": 2, "partition": ["embedding", "h.4"])",
       "parallel.partition names \"h.4\", which is no layer; they are \"embedding\", \"h.0\" to "
       "\"h.3\", \"head\""},
      {2, R"("pipeline_parallel_degree": 2, "auto_partition": false)",
       "parallel.partition leaves stage 1 of 2 without a layer"},
      {2, R"("pipeline_parallel_degree": 2, "default_partition": 2)",
       "parallel.partition: default_partition is 2, not from 0 to 1"},
      {2, R"("pipeline_parallel_degree": 2, "partition": {"head": 1, "h.0": 1})",
       "parallel.partition puts layer \"h.1\" on stage 0 behind \"h.0\" on stage 1; stages follow"},
  };
  for (const auto& [ranks, parallel, said, train] : cases) {
    TrainConfig config = planned_config(parallel, train);
    if (std::string(train) != "") {
      config.train.batch = 1'000'000'000;
    }
    const std::string message = plan_refusal(config, ranks);
    EXPECT_THAT(message, HasSubstr(said)) << parallel;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

/// A file that cuts a model of this width behind its second block.
std::string partition_file_of(std::int64_t width) {
  const auto layers = mp::gpt2_layers(
      {.n_layer = 4, .n_embd = width, .n_head = 2, .vocab_size = 256, .n_positions = 16});
  std::vector<const mp::ModelPiece*> pieces;
  for (const mp::ModelPiece& layer : layers) {
    pieces.push_back(&layer);
  }
  return mp::write_partition_file(pieces, std::vector{0, 0, 0, 1, 1, 1}, 2);
}

TEST(PipelinePlan, cuts_as_a_file_says_that_is_of_this_model) {
  TrainConfig config = planned_config(R"("pipeline_parallel_degree": 2, "partition_file": "p")");
  config.pipeline.partition.file_text = partition_file_of(16);
  EXPECT_EQ(cut_model(config, 2), (std::vector<int>{0, 3}));
  config.pipeline.partition.file_text = partition_file_of(32);
  EXPECT_THAT(plan_refusal(config, 2),
              HasSubstr("p is of another model: its piece 0 is \"embedding\" with"));
  config.pipeline.partition.file_text = "{}";
  EXPECT_THAT(plan_refusal(config, 2), HasSubstr("p: it is no partition file"));
}

TEST(PipelinePlan, cuts_where_it_is_told) {
  EXPECT_EQ(cut_model(planned_config(R"("partition": ["embedding", "h.0", "head"])"), 3),
            (std::vector<int>{0, 1, 5}));
  EXPECT_EQ(cut_model(planned_config(R"("partition": {"h.2": 1, "h.3": 1, "head": 1})"), 2),
            (std::vector<int>{0, 3}));
}

TEST(PipelinePlan, balances_blocks_where_nothing_is_told) {
  EXPECT_EQ(cut_model(planned_config(""), 1), (std::vector<int>{0}));
  EXPECT_EQ(cut_model(planned_config(""), 2).size(), 2u);
  EXPECT_EQ(cut_model(planned_config(""), 6), (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

/// Every rank of a job of eight, under every schedule that takes the shape.
TEST(PipelinePlan, gives_every_unit_and_sample_to_someone) {
  for (const std::string& kind : mp::schedule_kinds()) {
    const TrainConfig config = planned_config(
        R"("pipeline_parallel_degree": 2, "hybrid_shard_degree": 2, "microbatches": 4,
           "pipeline": ")" +
        kind + "\"");
    const PipelinePlan plan = plan_pipeline(config, 8);
    std::set<int> shares;
    std::multiset<std::string> units;
    for (int rank = 0; rank < 8; ++rank) {
      const RankPlan mine = plan_of_rank(config, plan, rank);
      shares.insert(mine.share.rank);
      if (mine.share.rank == 0) {
        for (const UnitSpec& unit : gpt_units(config.model, 1, mine.placement)) {
          units.insert(unit.name);
        }
      }
      EXPECT_EQ(std::ranges::count(mine.actions, mp::Op::forward, &mp::Action::op),
                4 * static_cast<std::ptrdiff_t>(mine.placement.stages.size()))
          << kind;
      EXPECT_FALSE(mine.sharding.visits.empty());
      EXPECT_FALSE(mine.sharding.evaluation.empty());
    }
    EXPECT_EQ(shares, (std::set<int>{0, 1, 2, 3})) << kind;
    EXPECT_EQ(units, (std::multiset<std::string>{"wte", "wpe", "h.0", "h.1", "h.2", "h.3", "ln_f",
                                                 "head"}))
        << kind;
  }
}

/// Units that a rank gathers in a step of these visits.
int gathered_units(const RankPlan& rank, const std::vector<Visit>& visits) {
  int units = 0;
  for (const Visit& visit : visits) {
    units = std::max(units, visit.unit + 1);
  }
  fsdp::GatherSchedule order({.units = std::vector<std::string>(std::size_t(units)),
                              .step = visits,
                              .evaluation = rank.sharding.evaluation,
                              .micro_steps = rank.sharding.micro_steps});
  std::size_t gathers = order.restart().size();
  for (const Visit& visit : visits) {
    gathers += order.acquire(visit.unit).gather.size();
    order.release(visit.unit);
  }
  return static_cast<int>(gathers);
}

TEST(PipelinePlan, gathers_no_more_where_backwards_are_halved) {
  const auto plan_of = [](const std::string& kind, int rank) {
    const TrainConfig config = planned_config(
        R"("pipeline_parallel_degree": 2, "microbatches": 8, "pipeline": ")" + kind + '"');
    return plan_of_rank(config, plan_pipeline(config, 4), rank);
  };
  for (const int rank : {0, 2}) {
    const RankPlan whole = plan_of("1f1b", rank), halved = plan_of("zero_bubble_h1", rank);
    std::vector<Visit> reading = halved.sharding.visits;
    for (Visit& visit : reading) {
      visit.pass = reads_values(visit.pass) ? visit.pass : VisitPass::backward;
    }
    const int gathered = gathered_units(halved, halved.sharding.visits);
    EXPECT_LE(gathered, gathered_units(whole, whole.sharding.visits)) << rank;
    EXPECT_LT(3 * gathered, 2 * gathered_units(halved, reading)) << rank;
  }
}

TEST(PipelinePlan, gives_schedules_that_are_a_v_two_stages_a_rank) {
  const auto stages = [](const std::string& kind) {
    return plan_pipeline(planned_config(R"("pipeline_parallel_degree": 2, "microbatches": 4,
                                           "pipeline": ")" +
                                        kind + "\""),
                         2)
        .schedule.stages();
  };
  EXPECT_EQ(stages("interleaved"), 2);
  EXPECT_EQ(stages("zb_v"), 4);
  EXPECT_EQ(stages("dualpipe_v"), 4);
}

TEST(PipelinePlan, tells_people_which_layers_a_stage_has) {
  const TrainConfig config =
      planned_config(R"("pipeline_parallel_degree": 3, "partition": ["embedding", "h.0", "head"])");
  EXPECT_EQ(pipeline_text(config, plan_pipeline(config, 3)),
            "pipelines of 3 ranks, schedule interleaved; stages: embedding | h.0 to h.3 | head\n");
  EXPECT_EQ(pipeline_text(planned_config(""), plan_pipeline(planned_config(""), 2)), "");
}

}  // namespace
}  // namespace sprat::train
