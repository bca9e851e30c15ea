// Attention whose sequences are cut among ranks that are threads, beside attention of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sprat/context.hpp"
#include "sprat/error.hpp"
#include "tests/unit/layers/attention_pass.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::context_test {
namespace {

using layers::AttentionShape;
using layers_test::attention::Exact;
using layers_test::attention::Pass;
using ::testing::HasSubstr;

const std::vector<std::string> ways = {"p2p", "all_gather"};

/// Chunks of four ranks that are multiples of a block of queries: less than a block of keys, which
/// then has several, more, and a multiple of it.
const std::vector<int> block_lengths = {512, 1536, 2048};
/// And those that are not.
const std::vector<int> odd_lengths = {8, 200, 1208};

AttentionShape shape_of(int length) {
  const int few = length > 1000 ? 1 : 2;
  return {.sequences = few, .length = length, .heads = few, .head_width = 4};
}

/// Calls visit(row of the whole, row of the rank).
template <class Visit>
void for_each_row_of(const AttentionShape& whole, int ranks, int rank, const Visit& visit) {
  int row = 0;
  for (int sequence = 0; sequence < whole.sequences; ++sequence) {
    for (const ContextPiece& piece : context_pieces(whole.length, ranks, rank)) {
      for (int i = 0; i < piece.count; ++i) {
        visit(sequence * whole.length + piece.first + i, row++);
      }
    }
  }
}

/// The rank's rows of the inputs.
Pass part_of(const Pass& whole, const AttentionShape& shape, int ranks, int rank) {
  Pass part(shape);
  for_each_row_of(whole.shape, ranks, rank, [&](int from, int to) {
    std::copy_n(whole.qkv.data() + whole.place(from, 0, 0), 3 * whole.width,
                part.qkv.data() + part.place(to, 0, 0));
    std::copy_n(whole.dout.data() + from * whole.width, whole.width,
                part.dout.data() + to * whole.width);
  });
  return part;
}

/// All that the ranks' passes wrote, as if one rank had.
void join(const Pass& part, int ranks, int rank, Pass& whole) {
  for_each_row_of(whole.shape, ranks, rank, [&](int to, int from) {
    std::copy_n(part.out.data() + from * part.width, part.width,
                whole.out.data() + to * part.width);
    std::copy_n(part.dqkv.data() + part.place(from, 0, 0), 3 * part.width,
                whole.dqkv.data() + whole.place(to, 0, 0));
    for (int head = 0; head < part.shape.heads; ++head) {
      const auto kept = [&](const Pass& pass, int row) {
        const int length = pass.shape.length;
        return std::size_t((row / length * pass.shape.heads + head) * length + row % length);
      };
      whole.highest[kept(whole, to)] = part.highest[kept(part, from)];
      whole.share[kept(whole, to)] = part.share[kept(part, from)];
    }
  });
}

/// Twice, for nothing may be left of a call before.
void run_on(ContextAttention& attention, const GemmBackend& gemm, const AttentionShape& whole,
            Pass& part) {
  std::vector<float> forward(layers::attention_forward_workspace(whole));
  std::vector<float> backward(layers::attention_backward_workspace(whole));
  for (int time = 0; time < 2; ++time) {
    attention.forward(gemm, part.forward(forward));
    attention.backward_input(gemm, part.backward(backward));
  }
}

Pass run_cut(const AttentionShape& shape, int ranks, const std::string& way,
             const Config& config = {}) {
  const auto gemm = open_gemm_backend("reference");
  Pass whole(shape);
  std::mutex joining;
  run_virtual_ranks(ranks, config, [&](Communicator& world) {
    ContextAttention attention(world, shape, {.cp_comm_type = way});
    Pass part = part_of(whole, attention.rank_shape(), world.size(), world.rank());
    run_on(attention, *gemm, shape, part);
    const std::lock_guard lock(joining);
    join(part, world.size(), world.rank(), whole);
  });
  return whole;
}

Pass run_whole(const AttentionShape& shape) {
  Pass pass(shape);
  pass.run(*open_gemm_backend("reference"));
  return pass;
}

class ContextAttentionOfRanks : public ::testing::TestWithParam<int> {};

TEST_P(ContextAttentionOfRanks, has_the_bits_of_one_rank_forward_where_chunks_are_blocks) {
  for (const int length : part_if_sanitized(block_lengths, 3, std::size_t(GetParam() / 2))) {
    const Pass whole = run_whole(shape_of(length));
    for (const std::string& way : ways) {
      const Pass cut = run_cut(whole.shape, GetParam(), way);
      ASSERT_EQ(cut.out, whole.out) << length << ' ' << way;
      ASSERT_EQ(cut.highest, whole.highest) << length << ' ' << way;
      ASSERT_EQ(cut.share, whole.share) << length << ' ' << way;
    }
  }
}

TEST_P(ContextAttentionOfRanks, has_the_same_bits_forward_by_both_ways_wherever_it_is_cut) {
  for (const int length : part_if_sanitized(odd_lengths, 3, std::size_t(GetParam() / 2))) {
    const Pass sent = run_cut(shape_of(length), GetParam(), ways[0]);
    const Pass gathered = run_cut(shape_of(length), GetParam(), ways[1]);
    ASSERT_EQ(sent.out, gathered.out) << length;
    ASSERT_EQ(sent.highest, gathered.highest) << length;
    ASSERT_EQ(sent.share, gathered.share) << length;
  }
}

/// One head, whose magnitudes stand for the others.
void expect_within_roundings(const Pass& cut, const Pass& whole, int ranks) {
  const int width = whole.shape.head_width, head = whole.shape.heads - 1;
  const int sequence = whole.shape.sequences - 1;
  const Exact exact(whole, sequence, head);
  // Each end of a chunk may end a block, and ranks' sums are added.
  const double roundings = exact.gradient_roundings() + 2 * 2 * ranks + ranks;
  for (int query = 0; query < whole.shape.length; ++query) {
    const int row = sequence * whole.shape.length + query;
    for (int i = 0; i < width; ++i) {
      const int column = head * width + i, place = query * width + i;
      ASSERT_NEAR(cut.out[std::size_t(row * whole.width + column)],
                  whole.out[std::size_t(row * whole.width + column)],
                  2 * layers_test::gamma(exact.out_roundings()) * exact.out_magnitude[place])
          << "row " << row;
      for (int part = 0; part < 3; ++part) {
        const auto at = std::size_t(whole.place(row, part, column));
        ASSERT_NEAR(cut.dqkv[at], whole.dqkv[at],
                    2 * layers_test::gamma(roundings) * exact.gradient_magnitude[part][place])
            << "row " << row << " part " << part;
      }
    }
  }
}

TEST_P(ContextAttentionOfRanks, is_that_of_one_rank_within_its_roundings) {
  for (const int length :
       part_if_sanitized<int>({8, 1208, 200, 512}, 4, std::size_t(GetParam() / 2))) {
    const Pass whole = run_whole(shape_of(length));
    for (const std::string& way : ways) {
      SCOPED_TRACE(way + " " + std::to_string(length));
      expect_within_roundings(run_cut(whole.shape, GetParam(), way), whole, GetParam());
    }
  }
}

TEST_P(ContextAttentionOfRanks, has_the_same_gradients_every_time) {
  for (const std::string& way : ways) {
    const Pass once = run_cut(shape_of(200), GetParam(), way);
    const Pass again = run_cut(shape_of(200), GetParam(), way);
    EXPECT_EQ(once.dqkv, again.dqkv) << way;
  }
}

TEST_P(ContextAttentionOfRanks, computes_fewer_sequences_than_it_has_memory_for) {
  const auto gemm = open_gemm_backend("reference");
  for (const std::string& way : ways) {
    const AttentionShape few = shape_of(200);
    const Pass expected = run_cut(few, GetParam(), way);
    Pass whole(few);
    std::mutex joining;
    run_virtual_ranks(GetParam(), Config{}, [&](Communicator& world) {
      AttentionShape most = few;
      most.sequences = few.sequences + 3;
      ContextAttention attention(world, most, {.cp_comm_type = way});
      AttentionShape own = attention.rank_shape();
      own.sequences = few.sequences;
      Pass part = part_of(whole, own, world.size(), world.rank());
      std::vector<float> forward(layers::attention_forward_workspace(most));
      std::vector<float> backward(layers::attention_backward_workspace(most));
      attention.forward(*gemm, {}, 0);
      attention.forward(*gemm, part.forward(forward), few.sequences);
      attention.backward_input(*gemm, part.backward(backward), few.sequences);
      const std::lock_guard lock(joining);
      join(part, world.size(), world.rank(), whole);
    });
    EXPECT_EQ(whole.out, expected.out) << way;
    EXPECT_EQ(whole.dqkv, expected.dqkv) << way;
  }
}

INSTANTIATE_TEST_SUITE_P(Cut, ContextAttentionOfRanks, ::testing::Values(1, 2, 4));

TEST(ContextAttention, has_two_runs_of_positions_on_each_rank) {
  EXPECT_EQ(context_pieces(80, 4, 1),
            (std::array<ContextPiece, 2>{ContextPiece{10, 10}, ContextPiece{60, 10}}));
  EXPECT_THROW(context_pieces(80, 4, 4), Error);
  EXPECT_THROW(context_pieces(81, 4, 1), Error);
}

TEST(ContextAttention, has_the_same_bits_wherever_its_ranks_are) {
  // Messages of 40 KiB, which wait for their receives.
  const AttentionShape shape{.sequences = 4, .length = 320, .heads = 2, .head_width = 16};
  for (const std::string& way : ways) {
    const Pass here = run_cut(shape, 4, way);
    for (const char* hosts : {"a,b,a,b", "a,a,a,b"}) {
      Config config;
      config.host = hosts;
      const Pass apart = run_cut(shape, 4, way, config);
      EXPECT_EQ(apart.out, here.out) << way << ' ' << hosts;
      EXPECT_EQ(apart.dqkv, here.dqkv) << way << ' ' << hosts;
    }
  }
}

/// Bytes of K and V of a chunk.
std::size_t chunk_bytes(const AttentionShape& shape, int ranks) {
  return std::size_t(shape.sequences * shape.length / (2 * ranks) * 2 * shape.heads *
                     shape.head_width) *
         sizeof(float);
}

TEST(ContextAttention, costs_what_its_formulas_say) {
  const AttentionShape shape{.sequences = 2, .length = 4096, .heads = 2, .head_width = 4};
  for (const int ranks : {2, 4, 8}) {
    const std::size_t chunk = chunk_bytes(shape, ranks), others = std::size_t(2 * ranks - 2);
    for (int rank = 0; rank < ranks; ++rank) {
      const ContextCost sent = context_cost(shape, ranks, rank, {.cp_comm_type = "p2p"});
      EXPECT_EQ(sent.memory_bytes, 11 * chunk);
      EXPECT_EQ(sent.forward_bytes, (others - std::size_t(rank)) * chunk);
      const ContextCost gathered = context_cost(shape, ranks, rank, {.cp_comm_type = "all_gather"});
      EXPECT_EQ(gathered.memory_bytes, std::size_t(4 * ranks) * chunk);
      EXPECT_EQ(gathered.forward_bytes, others * chunk);
      EXPECT_EQ(gathered.backward_bytes, 2 * others * chunk);
    }
  }
  // A chunk of half a block of keys, and two such blocks.
  const ContextCost bordered = context_cost(shape, 16, 0, {.cp_comm_type = "p2p"});
  EXPECT_EQ(bordered.memory_bytes, (11 + 2 * 2) * chunk_bytes(shape, 16));
}

TEST(ContextAttention, holds_what_it_costs) {
  constexpr std::size_t page = 4096;
  run_virtual_ranks(4, Config{}, [](Communicator& world) {
    for (const std::string& way : ways) {
      for (const int length : {200, 2048}) {
        const ContextOptions options{.cp_comm_type = way};
        const std::size_t cost =
            context_cost(shape_of(length), world.size(), world.rank(), options).memory_bytes;
        const std::size_t held = ContextAttention(world, shape_of(length), options).memory_bytes();
        EXPECT_GE(held, cost) << way << ' ' << length;
        EXPECT_LT(held, cost + page) << way << ' ' << length;
      }
    }
  });
}

/// What every rank is told when it makes attention of this. A rank that is left waiting ends, and
/// is told of something else.
template <class Make>
std::vector<std::string> refusals(int ranks, const Make& make) {
  std::vector<std::string> told(static_cast<std::size_t>(ranks));
  Config config;
  config.timeout = std::chrono::seconds(20);
  run_virtual_ranks(ranks, config, [&](Communicator& world) {
    try {
      make(world);
    } catch (const Error& error) {
      told[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  return told;
}

TEST(ContextAttention, refuses_a_length_that_is_not_cut_evenly_on_every_rank) {
  const auto told =
      refusals(2, [](Communicator& world) { ContextAttention attention(world, shape_of(10)); });
  for (const std::string& words : told) {
    EXPECT_THAT(words, HasSubstr("sequences of 10 tokens are not cut into 4 equal chunks"));
    EXPECT_THAT(words, HasSubstr("the nearest length that is, is 12"));
  }
}

TEST(ContextAttention, names_what_ranks_differ_in) {
  const auto told = refusals(3, [](Communicator& world) {
    AttentionShape shape = shape_of(24);
    shape.heads = world.rank() == 2 ? 3 : 2;
    ContextAttention attention(world, shape);
  });
  for (const std::string& words : told) {
    EXPECT_THAT(words, HasSubstr("ranks 0 and 2 of "));
    EXPECT_THAT(words, HasSubstr(" cut attention of different heads: 2 and 3"));
  }
  const auto other = refusals(2, [](Communicator& world) {
    ContextAttention attention(world, shape_of(24),
                               {.cp_comm_type = ways[static_cast<std::size_t>(world.rank())]});
  });
  EXPECT_THAT(other[0], HasSubstr("different cp_comm_type: p2p and all_gather"));
}

TEST(ContextAttention, refuses_an_unknown_way_on_every_rank) {
  const auto of_one = refusals(3, [](Communicator& world) {
    ContextAttention attention(world, shape_of(24),
                               {.cp_comm_type = world.rank() == 1 ? "ring" : "p2p"});
  });
  for (const std::string& words : of_one) {
    EXPECT_THAT(words, HasSubstr("ranks 0 and 1 of "));
    EXPECT_THAT(words, HasSubstr("different cp_comm_type: p2p and an unknown one"));
  }
  const auto of_all = refusals(3, [](Communicator& world) {
    ContextAttention attention(world, shape_of(24), {.cp_comm_type = "ring"});
  });
  for (const std::string& words : of_all) {
    EXPECT_THAT(words, HasSubstr("no way \"ring\" of moving keys and values"));
  }
}

/// Products that fail.
class Failing final : public GemmBackend {
 public:
  const std::string& name() const noexcept override { return name_; }
  int sum_pieces() const noexcept override { return 1; }
  void multiply(const MatrixProduct&) const override {
    throw Error(ErrorCode::unavailable, "no product today");
  }

 private:
  const std::string name_ = "failing";
};

TEST(ContextAttention, that_fails_on_one_rank_fails_on_all) {
  for (const std::string& way : ways) {
    std::vector<std::string> told(3);
    const auto body = [&](Communicator& world) {
      const AttentionShape shape = shape_of(240);
      const auto good = open_gemm_backend("reference");
      const Failing bad;
      try {
        // Rank 1 may fail while another one has not yet seen that all agree on the attention.
        ContextAttention attention(world, shape, {.cp_comm_type = way});
        Pass part(attention.rank_shape());
        run_on(attention, world.rank() == 1 ? static_cast<const GemmBackend&>(bad) : *good, shape,
               part);
      } catch (const Error& error) {
        told[static_cast<std::size_t>(world.rank())] = error.what();
      }
    };
    run_virtual_ranks(3, Config{}, body);
    for (const std::string& words : told) {
      EXPECT_THAT(words, HasSubstr("attention of rank ")) << way;
      EXPECT_THAT(words, HasSubstr("no product today")) << way;
    }
  }
}

TEST(ContextAttention, that_one_rank_gives_too_many_sequences_fails_on_all) {
  const auto gemm = open_gemm_backend("reference");
  const AttentionShape shape = shape_of(240);
  for (const std::string& way : ways) {
    for (const bool forward : {true, false}) {
      const auto told = refusals(3, [&](Communicator& world) {
        ContextAttention attention(world, shape, {.cp_comm_type = way});
        Pass part(attention.rank_shape());
        const int sequences = shape.sequences + (world.rank() == 1 ? 1 : 0);
        std::vector<float> workspace(std::max(layers::attention_forward_workspace(shape),
                                              layers::attention_backward_workspace(shape)));
        if (forward) {
          attention.forward(*gemm, part.forward(workspace), sequences);
        } else {
          attention.backward_input(*gemm, part.backward(workspace), sequences);
        }
      });
      for (const std::string& words : told) {
        EXPECT_THAT(words, HasSubstr("attention of rank 1 of ")) << way;
        EXPECT_THAT(words, HasSubstr("a call of 3 sequences; this attention has memory for 2"))
            << way;
      }
    }
  }
}

}  // namespace
}  // namespace sprat::context_test
