// Attention of a sequence in pieces, beside attention of the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/layers.hpp"
#include "tests/unit/layers/attention_pass.hpp"
#include "tests/unit/layers/roundings.hpp"
#include "tests/unit/sanitized.hpp"

namespace sprat::layers_test::attention {
namespace {

/// Where a sequence is cut for its queries and, apart from that, for its keys; its length is last.
struct Cuts {
  std::vector<int> queries, keys;
};

std::string described(const Cuts& cuts) {
  std::string text = "queries";
  for (const int cut : cuts.queries) {
    text += " " + std::to_string(cut);
  }
  text += " keys";
  for (const int cut : cuts.keys) {
    text += " " + std::to_string(cut);
  }
  return text;
}

const std::vector<Cuts> block_cuts = {
    {{700}, {700}},           {{64, 128, 700}, {700}},
    {{128, 700}, {256, 700}}, {{64, 320, 384, 700}, {256, 512, 700}},
    {{640, 700}, {512, 700}}, {{256, 512, 700}, {256, 512, 768}},
};
const std::vector<Cuts> other_cuts = {
    {{1, 2, 700}, {700}},
    {{63, 65, 700}, {256, 700}},
    {{100, 300, 650, 700}, {256, 512, 700}},
};

AttentionShape cut_shape(const Cuts& cuts) {
  return {.sequences = 2, .length = cuts.queries.back(), .heads = 2, .head_width = 4};
}

/// What a piece's queries and keys are in the memory of the whole.
layers::AttentionPiece piece_of(const AttentionShape& shape, int query, int query_end, int key,
                                int key_end) {
  return {.sequences = shape.sequences,
          .heads = shape.heads,
          .head_width = shape.head_width,
          .first_query = query,
          .queries = query_end - query,
          .first_key = key,
          .keys = key_end - key};
}
layers::AttentionQueries queries_from(const Pass& pass, int first) {
  return {.query = pass.qkv.data() + pass.place(first, 0, 0),
          .stride = 3 * pass.width,
          .sequence_rows = pass.shape.length};
}
layers::AttentionKeys keys_from(const Pass& pass, int first) {
  return {.key = pass.qkv.data() + pass.place(first, 1, 0),
          .value = pass.qkv.data() + pass.place(first, 2, 0),
          .stride = 3 * pass.width,
          .sequence_rows = pass.shape.length};
}

/// Calls visit(piece) for each pair of a piece of queries and one of keys that is not behind it.
template <class Visit>
void for_each_piece(const Cuts& cuts, const Visit& visit) {
  const AttentionShape shape = cut_shape(cuts);
  for (int query = 0; const int query_end : cuts.queries) {
    for (int key = 0; const int key_end : cuts.keys) {
      if (key < query_end) {
        visit(piece_of(shape, query, query_end, key, std::min(key_end, shape.length)));
      }
      key = key_end;
    }
    query = query_end;
  }
}

void forward_in_pieces(const GemmBackend& gemm, const Cuts& cuts, Pass& pass) {
  for_each_piece(cuts, [&](const layers::AttentionPiece& piece) {
    std::vector<float> workspace(layers::attention_forward_workspace(piece), unwritten);
    layers::attention_forward_piece(
        gemm, piece,
        {.queries = queries_from(pass, piece.first_query),
         .keys = keys_from(pass, piece.first_key),
         .out = pass.out.data() + std::ptrdiff_t{piece.first_query} * pass.width,
         .out_stride = pass.width,
         .rows = {pass.highest.data() + piece.first_query, pass.share.data() + piece.first_query},
         .workspace = workspace});
  });
}

void backward_in_pieces(const GemmBackend& gemm, const Cuts& cuts, Pass& pass) {
  std::ranges::fill(pass.dqkv, 0.0f);
  for_each_piece(cuts, [&](const layers::AttentionPiece& piece) {
    std::vector<float> workspace(layers::attention_backward_workspace(piece), unwritten);
    layers::attention_backward_piece(
        gemm, piece,
        {.queries = queries_from(pass, piece.first_query),
         .keys = keys_from(pass, piece.first_key),
         .out = pass.out.data() + std::ptrdiff_t{piece.first_query} * pass.width,
         .dout = pass.dout.data() + std::ptrdiff_t{piece.first_query} * pass.width,
         .out_stride = pass.width,
         .rows = {pass.highest.data() + piece.first_query, pass.share.data() + piece.first_query},
         .dquery = pass.dqkv.data() + pass.place(piece.first_query, 0, 0),
         .dkeys = {.key = pass.dqkv.data() + pass.place(piece.first_key, 1, 0),
                   .value = pass.dqkv.data() + pass.place(piece.first_key, 2, 0),
                   .stride = 3 * pass.width,
                   .sequence_rows = pass.shape.length},
         .workspace = workspace});
  });
}

TEST(AttentionPieces, have_the_bits_of_the_whole_forward_where_cuts_are_those_of_blocks) {
  const auto gemm = open_gemm_backend("reference");
  for (const Cuts& cuts : part_if_sanitized(block_cuts, 3)) {
    SCOPED_TRACE(described(cuts));
    Pass whole(cut_shape(cuts)), pieces(cut_shape(cuts));
    whole.run(*gemm);
    forward_in_pieces(*gemm, cuts, pieces);
    ASSERT_EQ(pieces.out, whole.out);
    ASSERT_EQ(pieces.highest, whole.highest);
    ASSERT_EQ(pieces.share, whole.share);
  }
}

TEST(AttentionPieces, are_the_whole_forward_within_its_roundings_wherever_queries_are_cut) {
  const auto gemm = open_gemm_backend("reference");
  for (const Cuts& cuts : other_cuts) {
    SCOPED_TRACE(described(cuts));
    Pass whole(cut_shape(cuts)), pieces(cut_shape(cuts));
    whole.run(*gemm);
    forward_in_pieces(*gemm, cuts, pieces);
    const Exact exact(whole, 1, 1);
    for (int query = 0; query < whole.shape.length; ++query) {
      for (int i = 0; i < whole.shape.head_width; ++i) {
        const int place = (whole.shape.length + query) * whole.width + whole.shape.head_width + i;
        const double magnitude = exact.out_magnitude[query * whole.shape.head_width + i];
        ASSERT_NEAR(pieces.out[place], whole.out[place],
                    2 * gamma(exact.out_roundings()) * magnitude)
            << query;
      }
    }
  }
}

TEST(AttentionPieces, add_up_to_the_whole_backward_within_its_roundings) {
  const auto gemm = open_gemm_backend("reference");
  std::vector<Cuts> all = block_cuts;
  all.insert(all.end(), other_cuts.begin(), other_cuts.end());
  all.push_back({{50, 333, 700}, {10, 129, 600, 700}});
  for (const Cuts& cuts : part_if_sanitized(all, 3)) {
    SCOPED_TRACE(described(cuts));
    Pass whole(cut_shape(cuts));
    whole.run(*gemm);
    Pass pieces = whole;
    backward_in_pieces(*gemm, cuts, pieces);
    const Exact exact(whole, 1, 0);
    // A cut makes one more sum of a block than the whole has.
    const double roundings =
        exact.gradient_roundings() + double(cuts.queries.size() + cuts.keys.size());
    for (int row = 0; row < whole.shape.length; ++row) {
      for (int part = 0; part < 3; ++part) {
        for (int i = 0; i < whole.shape.head_width; ++i) {
          const int place = whole.place(whole.shape.length + row, part, i);
          const double magnitude = exact.gradient_magnitude[part][row * whole.shape.head_width + i];
          ASSERT_NEAR(pieces.dqkv[place], whole.dqkv[place], 2 * gamma(roundings) * magnitude)
              << "row " << row << " part " << part;
        }
      }
    }
  }
}

TEST(AttentionPieces, of_blocks_have_the_bits_of_the_whole_backward_for_queries) {
  const auto gemm = open_gemm_backend("reference");
  for (const Cuts& cuts : part_if_sanitized(block_cuts, 3)) {
    SCOPED_TRACE(described(cuts));
    Pass whole(cut_shape(cuts));
    whole.run(*gemm);
    Pass pieces = whole;
    backward_in_pieces(*gemm, cuts, pieces);
    for (int row = 0; row < whole.rows; ++row) {
      for (int column = 0; column < whole.width; ++column) {
        const int place = whole.place(row, 0, column);
        ASSERT_EQ(pieces.dqkv[place], whole.dqkv[place]) << row;
      }
    }
  }
}

TEST(AttentionPieces, cost_together_what_the_whole_costs) {
  for (const Cuts& cuts : block_cuts) {
    SCOPED_TRACE(described(cuts));
    std::uint64_t forward = 0, backward = 0;
    for_each_piece(cuts, [&](const layers::AttentionPiece& piece) {
      forward += layers::attention_forward_cost(piece).flops;
      backward += layers::attention_backward_input_cost(piece).flops;
    });
    EXPECT_EQ(forward, layers::attention_forward_cost(cut_shape(cuts)).flops);
    EXPECT_EQ(backward, layers::attention_backward_input_cost(cut_shape(cuts)).flops);
  }
}

TEST(AttentionPieces, refuse_keys_that_cut_a_block) {
  const auto gemm = open_gemm_backend("reference");
  const AttentionShape shape{.sequences = 1, .length = 700, .heads = 1, .head_width = 4};
  std::vector<float> workspace(layers::attention_forward_workspace(shape));
  const auto refusal = [&](int key, int key_end) -> std::string {
    try {
      layers::attention_forward_piece(*gemm, piece_of(shape, 600, 700, key, key_end),
                                      {.workspace = workspace});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string words = " would cut a block of keys; begin and end at multiples of 256";
  EXPECT_NE(refusal(64, 256).find("from position 64 up to 256 for queries up to 700" + words),
            std::string::npos);
  EXPECT_NE(refusal(0, 320).find("from position 0 up to 320 for queries up to 700" + words),
            std::string::npos);
}

}  // namespace
}  // namespace sprat::layers_test::attention
