// How both ends of a new stream find out whose they are.
#include "comm/transports/sockets/handshake.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace sprat::comm::sockets {
namespace {

const StreamName name{.from = 3, .to = 5, .stream = 1};

Accepting::Keys keys_of(const std::string& key) {
  return [key](const StreamName& said) { return said == name ? std::optional(key) : std::nullopt; };
}

/// Carries up to `most` bytes; what has come of it.
template <class From, class To>
Greeted carry(From& from, To& to, std::size_t most) {
  const auto bytes = from.output();
  const auto room = to.input();
  const std::size_t count = std::min({bytes.size(), room.size(), most});
  if (count == 0) {
    return Greeted::not_yet;
  }
  std::copy_n(bytes.begin(), count, room.begin());
  from.wrote(count);
  return to.got(count);
}

struct Outcome {
  Greeted connecting = Greeted::not_yet, accepting = Greeted::not_yet;
};

Outcome greet(Connecting& connecting, Accepting& accepting, bool stands, std::size_t most) {
  Outcome outcome;
  for (int round = 0; round < 1000; ++round) {
    if (outcome.accepting == Greeted::not_yet) {
      outcome.accepting = carry(connecting, accepting, most);
      if (outcome.accepting == Greeted::proved) {
        accepting.answer(stands);
      }
    }
    if (outcome.connecting == Greeted::not_yet) {
      outcome.connecting = carry(accepting, connecting, most);
    }
  }
  return outcome;
}

TEST(StreamHandshake, proves_both_ends_to_each_other_in_whatever_parts_it_comes) {
  for (const bool stands : {true, false}) {
    for (const std::size_t most : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
      Connecting connecting(name, "the pair's key");
      Accepting accepting(keys_of("the pair's key"));
      const Outcome outcome = greet(connecting, accepting, stands, most);
      EXPECT_EQ(outcome.accepting, Greeted::proved);
      EXPECT_EQ(outcome.connecting, stands ? Greeted::stands : Greeted::crossed);
      EXPECT_EQ(accepting.name(), name);
    }
  }
}

TEST(StreamHandshake, ends_where_one_end_has_another_key) {
  Connecting connecting(name, "a guess");
  Accepting accepting(keys_of("the pair's key"));
  const Outcome outcome = greet(connecting, accepting, true, 1000);
  // Who connects finds out first, and sends no proof.
  EXPECT_EQ(outcome.connecting, Greeted::wrong);
  EXPECT_EQ(outcome.accepting, Greeted::not_yet);
}

TEST(StreamHandshake, says_nothing_to_who_does_not_name_a_stream_of_this_rank) {
  for (const StreamName& other :
       {StreamName{.from = 4, .to = 5, .stream = 1}, StreamName{.from = 3, .to = 6, .stream = 1},
        StreamName{.from = 3, .to = 5, .stream = 0}}) {
    Connecting connecting(other, "the pair's key");
    Accepting accepting(keys_of("the pair's key"));
    EXPECT_EQ(carry(connecting, accepting, 1000), Greeted::wrong);
    EXPECT_TRUE(accepting.output().empty());
  }
}

// A proof is of no use for another connection, for the other side, or in parts.
TEST(StreamHandshake, takes_no_proof_but_its_own) {
  const StreamHello hello{.name = name, .nonce = random_nonce()};
  const HelloBytes bytes = encode(hello);
  for (const int attempt : {0, 1, 2, 3}) {
    Accepting accepting(keys_of("the pair's key"));
    std::copy(bytes.begin(), bytes.end(), accepting.input().begin());
    ASSERT_EQ(accepting.got(bytes.size()), Greeted::not_yet);
    const auto challenge = accepting.output();
    ASSERT_EQ(challenge.size(), nonce_bytes + proof_bytes);
    Nonce nonce{};
    std::copy_n(challenge.begin(), nonce_bytes, nonce.begin());
    Proof theirs{};
    std::copy_n(challenge.begin() + nonce_bytes, proof_bytes, theirs.begin());
    const Proof good = prove("the pair's key", Side::rank, nonce, hello.nonce);
    Proof bent = good;
    bent.back() ^= std::byte{1};
    const Proof proofs[] = {theirs, bent, prove("the pair's key", Side::rank, Nonce{}, hello.nonce),
                            good};
    accepting.wrote(challenge.size());
    const Proof& sent = proofs[attempt];
    std::copy(sent.begin(), sent.end(), accepting.input().begin());
    EXPECT_EQ(accepting.got(sent.size()), attempt == 3 ? Greeted::proved : Greeted::wrong)
        << "attempt " << attempt;
    EXPECT_TRUE(accepting.output().empty());
  }
}

TEST(StreamHandshake, knows_a_greeting_by_all_of_its_fields) {
  const StreamHello hello{.name = name, .nonce = random_nonce()};
  const HelloBytes bytes = encode(hello);
  EXPECT_EQ(decode(bytes), hello);
  // The magic and the version.
  for (std::size_t at = 0; at < 12; ++at) {
    HelloBytes wrong = bytes;
    wrong[at] ^= std::byte{1};
    EXPECT_FALSE(decode(wrong)) << "byte " << at;
  }
}

TEST(StreamHandshake, has_a_key_for_each_stream_of_a_pair) {
  const std::string one = stream_key("low", "high", name);
  EXPECT_NE(one, stream_key("low", "high", {.from = 5, .to = 3, .stream = 1}));
  EXPECT_NE(one, stream_key("low", "high", {.from = 3, .to = 5, .stream = 2}));
  EXPECT_NE(one, stream_key("high", "low", name));
}

}  // namespace
}  // namespace sprat::comm::sockets
