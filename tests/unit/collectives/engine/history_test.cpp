// What a communicator remembers of its calls, and that ranks remember alike.
#include "collectives/engine/history.hpp"

#include <gtest/gtest.h>

#include <string>

namespace sprat::collectives {
namespace {

PlainCall call(Collective collective, std::size_t count, int root = 0) {
  return {collective, count, root, DType::f32, DType::f32, ReduceOp::sum};
}

/// Adds all_gathers of 1, 2, 3 ... elements, of which the last `in_flight` are.
void add_gathers(History& history, int calls, std::uint64_t in_flight) {
  for (int index = 0; index < calls; ++index) {
    const std::uint64_t next = history.next();
    history.add(signature_of(call(Collective::all_gather, next + 1)), 0, nullptr,
                next - std::min(next, in_flight));
  }
}

TEST(History, has_the_words_of_every_call_that_it_says_it_remembers) {
  for (const std::uint64_t in_flight : {0, 1, 59, 60, 61, 100, 200, 1'000}) {
    History history;
    for (int calls = 0; calls < 700; ++calls) {
      add_gathers(history, 1, in_flight);
      for (std::uint64_t sequence = 0; sequence <= history.next(); ++sequence) {
        if (history.remembers(sequence)) {
          ASSERT_EQ(history.words(sequence),
                    "all_gather of " + std::to_string(sequence + 1) + " f32")
              << "after " << history.next() << " calls, " << in_flight << " in flight";
        }
      }
    }
  }
}

TEST(History, remembers_all_that_is_in_flight) {
  History history;
  add_gathers(history, 500, 10);
  add_gathers(history, 100, 100);  // 10, then more and more
  for (std::uint64_t sequence = 500; sequence < 600; ++sequence) {
    EXPECT_TRUE(history.remembers(sequence)) << sequence;
  }
  EXPECT_FALSE(history.remembers(600));
  EXPECT_FALSE(history.remembers(0));
}

/// Reduces to one root after the other: each may end before anybody has heard of it, so each one's
/// words name those before it.
std::uint64_t add_reduces(History& history, int calls, std::uint64_t in_flight,
                          std::uint64_t prior_calls_hash) {
  for (int index = 0; index < calls; ++index) {
    const std::uint64_t next = history.next();
    const Signature signature =
        signature_of(call(Collective::reduce, 7, static_cast<int>(next % 5)));
    history.add(signature, prior_calls_hash, nullptr, next - std::min(next, in_flight));
    prior_calls_hash = digest(signature, prior_calls_hash);
  }
  return prior_calls_hash;
}

TEST(History, has_the_same_words_however_much_is_in_flight) {
  History one, other;
  std::uint64_t hash_of_one = 0, hash_of_other = 0;
  for (int calls = 0; calls < 400; ++calls) {
    hash_of_one = add_reduces(one, 1, 0, hash_of_one);
    hash_of_other = add_reduces(other, 1, 150, hash_of_other);
    for (std::uint64_t sequence = 0; sequence < one.next(); ++sequence) {
      if (one.remembers(sequence) && other.remembers(sequence)) {
        ASSERT_EQ(one.words(sequence), other.words(sequence)) << "call " << sequence;
      }
    }
  }
}

}  // namespace
}  // namespace sprat::collectives
