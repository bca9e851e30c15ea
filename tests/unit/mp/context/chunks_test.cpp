// How sequences are dealt, and which keys a forward may take at once.
#include "mp/context/chunks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "mp/context/key_spans.hpp"
#include "sprat/error.hpp"

namespace sprat::mp::context {
namespace {

using ::testing::HasSubstr;

std::string refusal_of_length(int length, int ranks) {
  try {
    chunk_length(length, ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ContextChunks, are_dealt_once_each) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    std::vector<int> dealt;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const int chunk : chunks_of(rank, ranks)) {
        EXPECT_EQ(owner_of(chunk, ranks), rank);
        dealt.push_back(chunk);
      }
    }
    std::vector<int> all(std::size_t(chunk_count(ranks)));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_THAT(dealt, ::testing::UnorderedElementsAreArray(all));
  }
}

TEST(ContextChunks, are_needed_by_the_ranks_that_have_a_later_one) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int chunk = 0; chunk < chunk_count(ranks); ++chunk) {
      std::vector<int> needers;
      for (int rank = 0; rank < ranks; ++rank) {
        if (chunks_of(rank, ranks)[1] > chunk && owner_of(chunk, ranks) != rank) {
          needers.push_back(rank);
        }
      }
      EXPECT_EQ(needers_of(chunk, ranks), needers) << chunk << " of " << ranks;
      EXPECT_EQ(rising_route(chunk, ranks).ranks, needers);
      EXPECT_THAT(ring_route(chunk, ranks).ranks, ::testing::UnorderedElementsAreArray(needers));
    }
  }
}

TEST(ContextChunks, go_around_the_ring_from_their_owner) {
  EXPECT_EQ(ring_route(1, 4).ranks, (std::vector{2, 3, 0}));
  EXPECT_EQ(ring_route(5, 4).ranks, (std::vector{0, 1}));
  EXPECT_EQ(ring_route(1, 4).before(2), -1);
  EXPECT_EQ(ring_route(1, 4).before(0), 3);
  EXPECT_EQ(ring_route(1, 4).behind(3), 0);
  EXPECT_EQ(ring_route(1, 4).behind(0), -1);
}

TEST(ContextChunks, of_a_length_that_does_not_divide_are_refused_with_the_nearest) {
  EXPECT_EQ(refusal_of_length(1000, 3),
            "sequences of 1000 tokens are not cut into 6 equal chunks, two for each of 3 context "
            "parallel ranks; the nearest length that is, is 1002");
  EXPECT_THAT(refusal_of_length(1025, 4), HasSubstr("the nearest length that is, is 1024"));
  EXPECT_THAT(refusal_of_length(1028, 4), HasSubstr("is 1032"));
  EXPECT_THAT(refusal_of_length(3, 4), HasSubstr("is 8"));
  EXPECT_THAT(refusal_of_length(0, 2), HasSubstr("is 4"));
  EXPECT_THAT(refusal_of_length(8, 0), HasSubstr("give at least 1"));
  EXPECT_EQ(chunk_length(1024, 4), 128);
}

/// What a forward with queries behind all chunks reads, one span after another.
std::vector<Span> spans_read(int length, int chunk) {
  std::vector<Span> read;
  for (int first = 0; first < length; first += chunk) {
    const KeySpans spans = key_spans({first, first + chunk}, 256);
    for (const Span& span : {spans.whole_border(), spans.whole_direct()}) {
      if (span.count() > 0) {
        read.push_back(span);
      }
    }
  }
  return read;
}

TEST(ContextKeySpans, are_whole_blocks_in_ascending_order) {
  for (int chunk = 1; chunk <= 1024; chunk += 7) {
    int read = 0;
    for (const Span& span : spans_read(8 * chunk, chunk)) {
      EXPECT_EQ(span.first, read) << chunk;
      EXPECT_EQ(span.end % 256, 0) << chunk;
      read = span.end;
    }
    EXPECT_EQ(read, 8 * chunk / 256 * 256) << chunk;
  }
}

TEST(ContextKeySpans, bring_every_key_to_the_border_or_to_where_it_is_read) {
  for (int chunk = 1; chunk <= 1024; chunk += 7) {
    Span held;  // of the border: what earlier chunks left
    for (int first = 0; first < 8 * chunk; first += chunk) {
      const KeySpans spans = key_spans({first, first + chunk}, 256);
      if (spans.border.count() > 0) {
        EXPECT_EQ(held.end, spans.from.first);
        EXPECT_EQ(held.first, spans.border.first);
        EXPECT_EQ(spans.from.end, spans.border.end);
        held = spans.border;
      }
      EXPECT_EQ(spans.direct.first, first + spans.from.count());
      EXPECT_EQ(spans.direct.end, first + chunk);
      if (spans.leftover.count() > 0) {
        EXPECT_EQ(spans.leftover.first % 256, 0);
        held = spans.leftover;
      }
    }
  }
}

}  // namespace
}  // namespace sprat::mp::context
