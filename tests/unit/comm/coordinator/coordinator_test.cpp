// The coordinator's decisions, without sockets, threads or clocks.
#include "comm/coordinator/coordinator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/rank_ranges.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = ControlMessage::Kind;

Blob text_blob(std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

ControlMessage message(Kind kind, int rank, std::string_view payload = "", int code = 0) {
  ControlMessage out;
  out.kind = kind;
  out.rank = rank;
  out.code = code;
  out.comm = 7;
  out.sequence = 42;
  out.payload = text_blob(payload);
  return out;
}

const std::vector<Term> terms = {{"version", "1"}, {"SPRAT_TIMEOUT", "30"}};

/// A coordinator at a time of our own.
struct Scene {
  explicit Scene(int ranks) : coordinator(ranks, terms), size(ranks) {}
  std::optional<Refusal> admit(int rank) { return coordinator.admit({rank, size, terms}, "here"); }
  void admit_all() {
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_FALSE(admit(rank)) << rank;
    }
  }
  void part(int rank, std::uint64_t ordinal, std::string_view purpose, std::string_view data = "") {
    EXPECT_TRUE(coordinator.received(
        rank, Part{ordinal, 1000, std::string(purpose), text_blob(data)}, now));
  }
  void say(int rank, ControlMessage said) { EXPECT_TRUE(coordinator.received(rank, said, now)); }
  /// What leaves now, if it is one output of that type.
  template <class T>
  std::pair<std::vector<int>, T> only() {
    const auto outputs = coordinator.take();
    if (outputs.size() != 1 || !std::holds_alternative<T>(outputs.front().frame)) {
      ADD_FAILURE() << outputs.size() << " outputs, or of another type";
      return {};
    }
    return {outputs.front().to, std::get<T>(outputs.front().frame)};
  }

  Coordinator coordinator;
  int size;
  Coordinator::Time now{};
};

TEST(Coordinator, gives_every_part_to_every_rank_once_all_have_come) {
  for (const int size : {1, 2, 5}) {
    Scene scene(size);
    scene.admit_all();
    for (std::uint64_t ordinal = 1; ordinal <= 3; ++ordinal) {
      for (int rank = size - 1; rank >= 0; --rank) {
        EXPECT_THAT(scene.coordinator.take(), IsEmpty());
        scene.part(rank, ordinal, "meeting", std::to_string(rank));
      }
      const auto [to, parts] = scene.only<Parts>();
      EXPECT_EQ(static_cast<int>(to.size()), size);
      EXPECT_EQ(parts.ordinal, ordinal);
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(parts.blobs[rank], text_blob(std::to_string(rank)));
      }
    }
  }
}

// What becomes of it is tested in handout_test.
TEST(Coordinator, gives_long_parts_once_to_each_host) {
  Scene scene(4);
  scene.admit_all();
  const std::string data(Handout::least_bytes / 4, 'x');
  const auto part = [&](int rank, std::uint64_t ordinal) {
    const std::uint64_t host = rank < 3 ? 7 : 8;
    scene.coordinator.received(rank, Part{ordinal, 1000, "meeting", text_blob(data), host},
                               scene.now);
  };
  for (int rank = 0; rank < 4; ++rank) {
    part(rank, 1);
  }
  auto outputs = scene.coordinator.take();
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_THAT(outputs[0].to, ElementsAre(0));
  EXPECT_THAT(outputs[1].to, ElementsAre(0, 3));
  EXPECT_TRUE(std::holds_alternative<Parts>(outputs[1].frame));
  ASSERT_EQ(scene.coordinator.deadline(), scene.now + Handout::patience);
  EXPECT_TRUE(scene.coordinator.received(0, PartsPlace{1, 1, 5, 2, 4096}, scene.now));
  EXPECT_THAT(scene.only<PartsPlace>().first, ElementsAre(1, 2));
  EXPECT_TRUE(scene.coordinator.received(2, PartsTaken{1, 0}, scene.now));
  EXPECT_TRUE(scene.coordinator.received(1, PartsTaken{1, 1}, scene.now));
  EXPECT_THAT(scene.only<PartsTaken>().first, ElementsAre(0));
  ASSERT_EQ(scene.coordinator.deadline(), scene.now + Handout::lull);
  scene.coordinator.tick(scene.now + Handout::lull);
  EXPECT_THAT(scene.only<Parts>().first, ElementsAre(2));
  // A leader that goes before it has shared leaves nobody without.
  for (int rank = 0; rank < 4; ++rank) {
    part(rank, 2);
  }
  scene.coordinator.take();
  scene.say(0, message(Kind::farewell, 0));
  scene.coordinator.take();
  scene.coordinator.tick(scene.now);
  outputs = scene.coordinator.take();
  ASSERT_FALSE(outputs.empty());
  EXPECT_THAT(outputs[0].to, ElementsAre(1));  // rank 2 could not read before, and got it itself
  EXPECT_TRUE(std::holds_alternative<Parts>(outputs[0].frame));
}

// Rank 0 has them and leaves. Rank 1 was told where they are, and may be slow to look.
TEST(Coordinator, leaves_nobody_without_long_parts_when_it_ends) {
  Scene scene(3);
  scene.admit_all();
  for (int rank = 0; rank < 3; ++rank) {
    const Blob part = text_blob(std::string(Handout::least_bytes / 2, 'x'));
    scene.coordinator.received(rank, Part{1, 1000, "meeting", part, 7}, scene.now);
  }
  scene.coordinator.received(0, PartsPlace{1, 1, 5, 2, 4096}, scene.now);
  scene.coordinator.received(2, PartsTaken{1, 1}, scene.now);
  scene.say(0, message(Kind::farewell, 0));
  scene.coordinator.take();
  scene.coordinator.finish();
  const auto [to, parts] = scene.only<Parts>();
  EXPECT_THAT(to, ElementsAre(1));
  EXPECT_EQ(parts.blobs.size(), 3u);
}

TEST(Coordinator, refuses_a_rank_whose_terms_differ_with_both_values) {
  Scene scene(3);
  scene.admit(0);
  const auto refusal = scene.coordinator.admit(
      {2, 3, {{"version", "1"}, {"SPRAT_TIMEOUT", "60"}, {"new", "x"}}}, "there");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, static_cast<int>(ErrorCode::mismatch));
  EXPECT_EQ(refusal->text,
            "rank 2 and rank 0 differ in what every rank must agree on:"
            "\n  SPRAT_TIMEOUT: \"30\" on rank 0, \"60\" on rank 2"
            "\n  new: (unknown) on rank 0, \"x\" on rank 2");
  const auto [to, failed] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0));
  EXPECT_EQ(failed.text, refusal->text);
  EXPECT_THAT(scene.admit(1)->text, HasSubstr("SPRAT_TIMEOUT"));  // the job cannot come together
}

TEST(Coordinator, knows_when_every_rank_has_come_to_hear_of_a_failure) {
  Scene scene(3);
  scene.admit(0);
  scene.coordinator.admit({1, 3, {}}, "there");
  EXPECT_FALSE(scene.coordinator.everyone_has_come());
  EXPECT_TRUE(scene.admit(2));  // the job has failed
  EXPECT_TRUE(scene.coordinator.everyone_has_come());
}

TEST(Coordinator, refuses_another_size_and_ranks_outside_it) {
  Scene scene(2);
  scene.admit(0);
  EXPECT_THAT(scene.coordinator.admit({1, 3, terms}, "there")->text,
              AllOf(HasSubstr("rank 1 says the job has 3"), HasSubstr("rank 0 says 2")));
  for (const int rank : {-1, 2, 1 << 30}) {
    Scene other(2);
    EXPECT_TRUE(other.coordinator.admit({rank, 2, terms}, "there")) << rank;
  }
}

TEST(Coordinator, refuses_a_second_rank_of_a_number_and_harms_nobody) {
  Scene scene(2);
  scene.admit_all();
  EXPECT_THAT(scene.admit(1)->text, HasSubstr("rank 1 has joined this job already"));
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  scene.part(0, 1, "meeting");
  scene.part(1, 1, "meeting");
  EXPECT_EQ(scene.only<Parts>().second.ordinal, 1u);
}

const Hello newcomer{unnumbered, unnumbered, terms};

TEST(Coordinator, numbers_newcomers_as_they_come_and_keeps_the_numbers_of_the_others) {
  Scene scene(4);
  scene.coordinator.take_newcomers(2);
  EXPECT_FALSE(scene.admit(0));
  for (const int rank : {2, 3}) {
    const Hello hello = scene.coordinator.numbered(newcomer);
    EXPECT_EQ(hello.rank, rank);
    EXPECT_EQ(hello.size, 4);
    EXPECT_FALSE(scene.coordinator.admit(hello, "there"));
  }
  EXPECT_EQ(scene.coordinator.numbered({1, 4, terms}).rank, 1);
  EXPECT_FALSE(scene.admit(1));
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
}

TEST(Coordinator, turns_newcomers_away_that_have_no_place_and_harms_nobody) {
  for (const int first : {1, 2}) {  // one place, which is taken; none
    Scene scene(2);
    scene.coordinator.take_newcomers(first);
    scene.admit_all();
    const Hello hello = scene.coordinator.numbered(newcomer);
    const auto refusal = scene.coordinator.admit(hello, "there");
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->code, static_cast<int>(ErrorCode::unavailable));
    EXPECT_THAT(refusal->text, HasSubstr(first == 1 ? "all 1 places" : "does not grow"));
    EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  }
}

/// The next growth may take it.
TEST(Coordinator, does_not_let_newcomers_fail_by_a_growth_that_has) {
  Scene scene(3);
  scene.coordinator.take_newcomers(1);
  scene.admit(0);
  scene.coordinator.ended(0, "it died");
  const auto refusal = scene.coordinator.admit(scene.coordinator.numbered(newcomer), "there");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, static_cast<int>(ErrorCode::unavailable));
  EXPECT_THAT(refusal->text, HasSubstr("could not grow: it died"));
}

TEST(Coordinator, says_of_who_is_missing_which_are_newcomers) {
  Scene scene(3);
  scene.coordinator.take_newcomers(1);
  scene.admit(0);
  scene.coordinator.admit(scene.coordinator.numbered(newcomer), "there");
  scene.part(0, 1, "growing");
  scene.now += 1s;
  scene.coordinator.tick(scene.now);
  const auto [to, failed] = scene.only<ControlMessage>();
  EXPECT_THAT(failed.text, HasSubstr("missing: rank 2 (newcomers are those from 1 on)"));
}

TEST(Coordinator, lists_who_came_and_who_did_not_at_the_deadline) {
  Scene scene(5);
  for (const int rank : {0, 1, 3}) {
    scene.admit(rank);
  }
  scene.coordinator.turned_away("10.0.0.9: does not know the token");
  scene.coordinator.went_unnamed("10.0.0.2:4711", "its connection ended");
  scene.part(0, 1, "joining");
  scene.part(3, 1, "joining");
  EXPECT_EQ(scene.coordinator.deadline(), scene.now + 1s);
  scene.now += 999ms;
  scene.coordinator.tick(scene.now);
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  scene.now += 1ms;
  scene.coordinator.tick(scene.now);
  const auto [to, failed] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0, 1, 3));
  EXPECT_EQ(failed.kind, Kind::failed);
  EXPECT_EQ(failed.code, static_cast<int>(ErrorCode::timeout));
  EXPECT_EQ(failed.rank, 2);
  EXPECT_EQ(
      failed.text,
      "joining: 2 of 5 ranks came within the 1 s that rank 0 had left (ranks 0, 3); missing: "
      "ranks 2, 4; joined but did not come: rank 1; turned away 10.0.0.9: does not know the token; "
      "a rank at 10.0.0.2:4711 went before it had said which one it is (its connection ended)");
  EXPECT_FALSE(scene.coordinator.deadline());
}

TEST(Coordinator, names_a_rank_that_dies_while_joining_at_once) {
  Scene scene(4);
  for (const int rank : {0, 1, 2}) {
    scene.admit(rank);
  }
  scene.part(0, 1, "joining");
  scene.coordinator.ended(1, "its connection ended");
  const auto [to, lost] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0, 2));
  EXPECT_EQ(lost.kind, Kind::lost);
  EXPECT_EQ(lost.rank, 1);
  EXPECT_EQ(lost.text, "its connection ended");
  // Who comes later hears it too, in an exchange or at the address.
  scene.part(2, 1, "joining");
  EXPECT_EQ(scene.only<ControlMessage>().second.rank, 1);
  EXPECT_EQ(scene.admit(3)->text, "the job has failed: lost rank 1: its connection ended");
}

TEST(Coordinator, tells_of_a_loss_once_and_not_after_a_farewell) {
  Scene scene(4);
  scene.admit_all();
  scene.say(0, message(Kind::lost, 2));
  EXPECT_THAT(scene.only<ControlMessage>().first, ElementsAre(0, 1, 3));
  scene.say(1, message(Kind::lost, 2));
  scene.coordinator.ended(2, "its connection ended");
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());

  scene.say(3, message(Kind::farewell, 3));
  const auto [to, farewell] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0, 1));
  EXPECT_EQ(farewell.kind, Kind::farewell);
  EXPECT_EQ(farewell.rank, 3);
  scene.coordinator.ended(3, "its connection ended");
  scene.say(0, message(Kind::lost, 3));
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  EXPECT_FALSE(scene.coordinator.alone(0));
  scene.say(1, message(Kind::farewell, 1));
  EXPECT_TRUE(scene.coordinator.alone(0));
}

TEST(Coordinator, fails_an_exchange_that_a_rank_left_before) {
  Scene scene(3);
  scene.admit_all();
  scene.say(2, message(Kind::farewell, 2));
  scene.coordinator.take();
  scene.part(0, 1, "mapping memory");
  const auto [to, failed] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0, 1));
  EXPECT_EQ(failed.code, static_cast<int>(ErrorCode::lost_peer));
  EXPECT_EQ(failed.text, "rank 2 left before mapping memory");
}

TEST(Coordinator, finishes_an_exchange_that_a_rank_left_after) {
  Scene scene(2);
  scene.admit_all();
  scene.part(0, 1, "meeting");
  scene.part(1, 1, "meeting");
  scene.coordinator.take();
  scene.say(1, message(Kind::farewell, 1));
  EXPECT_EQ(scene.only<ControlMessage>().second.kind, Kind::farewell);
}

TEST(Coordinator, fails_ranks_that_exchange_different_things) {
  Scene scene(2);
  scene.admit_all();
  scene.part(0, 1, "meeting");
  scene.part(1, 1, "mapping memory");
  const auto failed = scene.only<ControlMessage>().second;
  EXPECT_EQ(failed.code, static_cast<int>(ErrorCode::mismatch));
  EXPECT_EQ(failed.text, "rank 0 is meeting while rank 1 is mapping memory");
}

TEST(Coordinator, bounds_what_one_exchange_holds) {
  Scene scene(2);
  scene.admit_all();
  const std::string big(max_exchange_bytes, 'x');
  scene.part(0, 1, "meeting", big);
  scene.part(1, 1, "meeting", "one byte too many");
  EXPECT_EQ(scene.only<ControlMessage>().second.code,
            static_cast<int>(ErrorCode::invalid_argument));
}

TEST(Coordinator, relays_a_failure_to_all_others_as_it_was_told) {
  Scene scene(3);
  scene.admit_all();
  ControlMessage failure = message(Kind::failed, 2, "", static_cast<int>(ErrorCode::timeout));
  failure.text = "rank 2 is late";
  scene.say(1, failure);
  const auto [to, failed] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0, 2));
  EXPECT_EQ(failed.rank, 2);
  EXPECT_EQ(failed.code, static_cast<int>(ErrorCode::timeout));
  EXPECT_EQ(failed.text, "rank 2 is late");
}

TEST(Coordinator, blames_who_says_that_a_rank_failed_which_there_is_not) {
  for (const int nobody : {-2, 3, 1 << 30}) {
    Scene scene(3);
    scene.admit_all();
    scene.say(1, message(Kind::failed, nobody, "", static_cast<int>(ErrorCode::timeout)));
    EXPECT_EQ(scene.only<ControlMessage>().second.rank, 1);
  }
}

TEST(Coordinator, keeps_to_a_patience_of_weeks_and_to_no_more_than_a_deadline_can_be) {
  const std::chrono::milliseconds weeks = 24h * 30;
  for (const auto& [patience_ms, kept] :
       {std::pair{static_cast<std::uint64_t>(weeks.count()), weeks},
        std::pair{~std::uint64_t{0}, longest_exchange}}) {
    Scene scene(2);
    scene.admit_all();
    scene.now += 24h * 365;
    EXPECT_TRUE(scene.coordinator.received(0, Part{1, patience_ms, "joining", {}}, scene.now));
    EXPECT_EQ(scene.coordinator.deadline(), scene.now + kept);
    scene.now += kept;
    scene.coordinator.tick(scene.now);
    EXPECT_THAT(scene.only<ControlMessage>().second.text,
                HasSubstr(std::to_string(kept.count() / 1000) + " s"));
  }
}

TEST(Coordinator, queries_all_others_of_a_stalled_operation_once) {
  Scene scene(3);
  scene.admit_all();
  scene.say(1, message(Kind::stalled, 1, "sum of 8"));
  const auto [to, query] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0, 2));
  EXPECT_EQ(query.kind, Kind::query);
  EXPECT_EQ(query.comm, 7u);
  EXPECT_EQ(query.sequence, 42u);
  scene.say(0, message(Kind::stalled, 0, "sum of 8"));
  scene.say(1, message(Kind::stalled, 1, "sum of 8"));
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
}

TEST(Coordinator, gives_every_rank_the_verdict_when_signatures_differ) {
  Scene scene(4);
  scene.admit_all();
  scene.say(1, message(Kind::stalled, 1, "sum of 8"));
  scene.coordinator.take();
  scene.say(0, message(Kind::answer, 0, "sum of 8"));
  scene.say(2, message(Kind::answer, 2, "", 1));
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  scene.say(3, message(Kind::answer, 3, "max of 8"));
  const auto [to, verdict] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(verdict.kind, Kind::verdict);
  EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::mismatch));
  EXPECT_EQ(verdict.rank, 3);
  EXPECT_EQ(verdict.text, "rank 0 called sum of 8; rank 3 called max of 8");
}

TEST(Coordinator, holds_the_minority_at_fault) {
  Scene scene(3);
  scene.admit_all();
  scene.say(1, message(Kind::stalled, 1, "sum of 8"));
  scene.say(0, message(Kind::answer, 0, "sum of 9"));
  scene.coordinator.take();
  scene.say(2, message(Kind::answer, 2, "sum of 8"));
  EXPECT_EQ(scene.only<ControlMessage>().second.rank, 0);
}

TEST(Coordinator, shows_signatures_that_are_not_text_in_hexadecimal) {
  Scene scene(2);
  scene.admit_all();
  scene.say(0, message(Kind::stalled, 0, std::string_view("\x00\x01", 2)));
  scene.coordinator.take();
  scene.say(1, message(Kind::answer, 1, std::string_view("\x00\xff", 2)));
  EXPECT_EQ(scene.only<ControlMessage>().second.text, "rank 0 called 0001; rank 1 called 00ff");
}

TEST(Coordinator, tells_who_asked_which_ranks_have_not_called) {
  Scene scene(5);
  scene.admit_all();
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  scene.coordinator.take();
  scene.say(1, message(Kind::answer, 1, "barrier"));
  scene.say(2, message(Kind::answer, 2, "", 1));
  scene.say(4, message(Kind::answer, 4, "", 3));
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());  // rank 3 has not answered
  scene.now += 499ms;
  scene.coordinator.tick(scene.now);
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  EXPECT_EQ(scene.coordinator.deadline(), scene.now + 1ms);
  scene.now += 1ms;
  scene.coordinator.tick(scene.now);
  const auto [to, verdict] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0));
  EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::timeout));
  EXPECT_EQ(verdict.rank, 3);
  EXPECT_EQ(decode_lateness(verdict.payload), (Lateness{{2, 3}, {3}}));
  EXPECT_EQ(verdict.text, "rank 2 not called yet; no answer from rank 3");
}

TEST(Coordinator, asks_only_the_peer_of_a_message_and_fails_all_if_it_has_freed_the_communicator) {
  Scene scene(3);
  scene.admit_all();
  const auto sequence = *encode(MessageQuestion{.sends = true, .asker = 0, .peer = 2, .count = 5});
  ControlMessage stalled = message(Kind::stalled, 0);
  stalled.sequence = sequence;
  scene.say(1, stalled);  // it is rank 0's question
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  scene.say(0, stalled);
  const auto [to, query] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(2));
  EXPECT_EQ(query.kind, Kind::query);
  EXPECT_EQ(query.sequence, sequence);
  for (const int code : {0, 1, 2, 3}) {
    ControlMessage answer = message(Kind::answer, 2, "", code);
    answer.sequence = sequence;
    scene.say(2, answer);
    EXPECT_THAT(scene.coordinator.take(), IsEmpty()) << code;
  }
  ControlMessage answer = message(Kind::answer, 2, "", 4);
  answer.sequence = sequence;
  scene.say(1, answer);  // it is rank 2's answer
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  scene.say(2, answer);
  const auto [all, verdict] = scene.only<ControlMessage>();
  EXPECT_THAT(all, ElementsAre(0, 1, 2));
  EXPECT_EQ(verdict.kind, Kind::verdict);
  EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::mismatch));
  EXPECT_EQ(verdict.text,
            "rank 0 waits for a message to rank 2; rank 2 has freed that communicator before");
}

TEST(Coordinator, takes_no_harm_from_questions_about_ranks_that_there_are_not) {
  Scene scene(3);
  scene.admit_all();
  for (const int peer : {3, 32'767}) {
    ControlMessage said = message(Kind::stalled, 0);
    said.sequence = *encode(MessageQuestion{.asker = 0, .peer = peer});
    scene.say(0, said);
    said = message(Kind::answer, 0, "", 4);
    said.sequence = *encode(MessageQuestion{.asker = peer, .peer = 0});
    scene.say(0, said);
    EXPECT_THAT(scene.coordinator.take(), IsEmpty()) << peer;
  }
}

TEST(Coordinator, fails_ranks_that_wait_for_one_that_has_freed_the_communicator) {
  Scene scene(4);
  scene.admit_all();
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  scene.coordinator.take();
  scene.say(1, message(Kind::answer, 1, "", 1));
  scene.say(2, message(Kind::answer, 2, "", 4));
  scene.say(3, message(Kind::answer, 3, "", 3));
  const auto [to, verdict] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(verdict.rank, 2);
  EXPECT_EQ(verdict.text, "rank 0 called barrier; rank 2 has freed that communicator before");
}

TEST(Coordinator, tells_who_asked_when_every_rank_has_called) {
  Scene scene(2);
  scene.admit_all();
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  scene.coordinator.take();
  scene.say(1, message(Kind::answer, 1, "barrier"));
  const auto [to, verdict] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0));
  EXPECT_EQ(decode_lateness(verdict.payload), Lateness());
  EXPECT_EQ(verdict.rank, -1);
}

TEST(Coordinator, tells_who_has_called_and_fallen_silent) {
  Scene scene(3);
  scene.admit_all();
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  scene.say(1, message(Kind::answer, 1, "barrier"));
  scene.say(2, message(Kind::answer, 2, "barrier"));
  scene.coordinator.take();
  scene.now += 10s;
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  scene.say(1, message(Kind::answer, 1, "barrier"));
  scene.coordinator.take();
  scene.now += 500ms;
  scene.coordinator.tick(scene.now);
  const auto verdict = scene.only<ControlMessage>().second;
  EXPECT_EQ(verdict.rank, 2);
  EXPECT_EQ(verdict.text, "no answer from rank 2");
  EXPECT_EQ(decode_lateness(verdict.payload), (Lateness{{}, {2}}));
}

TEST(Coordinator, answers_from_memory_for_a_while_then_asks_again) {
  Scene scene(3);
  scene.admit_all();
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  scene.say(1, message(Kind::answer, 1, "barrier"));
  scene.coordinator.take();
  scene.say(2, message(Kind::answer, 2, "", 1));
  EXPECT_EQ(scene.only<ControlMessage>().second.kind, Kind::verdict);
  scene.now += 100ms;
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  EXPECT_THAT(scene.only<ControlMessage>().first, ElementsAre(0));
  scene.now += 100ms;
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  const auto [to, query] = scene.only<ControlMessage>();
  EXPECT_EQ(query.kind, Kind::query);
  EXPECT_THAT(to, ElementsAre(1, 2));  // rank 1 has called, but may be silent by now
  // The late rank comes at last, with something else.
  scene.say(2, message(Kind::stalled, 2, "all_reduce"));
  const auto verdict = scene.only<ControlMessage>().second;
  EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::mismatch));
  EXPECT_EQ(verdict.rank, 2);
  // The verdict stays.
  scene.now += 10s;
  scene.say(1, message(Kind::stalled, 1, "barrier"));
  EXPECT_EQ(scene.only<ControlMessage>().second.code, static_cast<int>(ErrorCode::mismatch));
}

TEST(Coordinator, waits_for_no_answer_of_the_dead) {
  Scene scene(3);
  scene.admit_all();
  scene.coordinator.ended(2, "its connection ended");
  scene.coordinator.take();
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  EXPECT_THAT(scene.only<ControlMessage>().first, ElementsAre(1));
  scene.say(1, message(Kind::answer, 1, "barrier"));
  EXPECT_THAT(decode_lateness(scene.only<ControlMessage>().second.payload).late, ElementsAre(2));
}

ControlMessage domain_failed(int rank, std::uint64_t domain) {
  ControlMessage out = message(Kind::domain_failed, rank, "", static_cast<int>(ErrorCode::timeout));
  out.comm = domain;
  out.text = "nobody came";
  return out;
}

TEST(Coordinator, tells_once_that_a_domain_has_failed_and_the_job_goes_on) {
  Scene scene(4);
  scene.admit_all();
  scene.say(1, domain_failed(3, 7));
  const auto [to, failed] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0, 2, 3));
  EXPECT_EQ(failed.kind, Kind::domain_failed);
  EXPECT_EQ(failed.rank, 3);
  EXPECT_EQ(failed.text, "nobody came");
  scene.say(2, domain_failed(3, 7));
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  scene.say(2, domain_failed(99, 8));  // whose fault it is must be a rank
  EXPECT_EQ(scene.only<ControlMessage>().second.rank, 2);
  for (int rank = 0; rank < 4; ++rank) {
    scene.part(rank, 1, "meeting");
  }
  EXPECT_EQ(scene.only<Parts>().second.blobs.size(), 4u);
}

TEST(Coordinator, tells_those_of_a_communicator_who_of_them_are_left) {
  Scene scene(4);
  scene.admit_all();
  ControlMessage come = message(Kind::gather, 0);
  come.payload =
      encode(GatherPart{1000, encode_ranks(std::vector<int>{0, 2, 3}), text_blob("part")});
  scene.say(0, come);
  scene.say(3, come);
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  scene.coordinator.ended(2, "its connection ended");
  const auto outputs = scene.coordinator.take();
  ASSERT_EQ(outputs.size(), 2u);  // the loss, and what follows from it
  EXPECT_THAT(outputs[1].to, ElementsAre(0, 3));
  const auto result = decode_gather_result(std::get<ControlMessage>(outputs[1].frame).payload);
  ASSERT_TRUE(result);
  EXPECT_THAT(result->ranks, ElementsAre(0, 3));
  EXPECT_THAT(scene.coordinator.deadline(), std::nullopt);
}

TEST(Coordinator, tells_of_ranks_that_leave_together_at_once) {
  Scene scene(6);
  scene.admit_all();
  scene.say(5, message(Kind::farewell, 5));
  EXPECT_THAT(scene.only<ControlMessage>().first, ElementsAre(0, 1, 2, 3, 4));
  for (const int rank : {2, 1, 4}) {
    scene.say(rank, message(Kind::farewell, rank));
  }
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  ASSERT_TRUE(scene.coordinator.deadline());
  scene.now = *scene.coordinator.deadline();
  scene.coordinator.tick(scene.now);
  const auto [to, farewell] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(departing(farewell, 6), ElementsAre(1, 2, 4));
  // Whoever ends the connections does not wait for a tick.
  scene.say(3, message(Kind::farewell, 3));
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  scene.coordinator.finish();
  EXPECT_THAT(departing(scene.only<ControlMessage>().second, 6), ElementsAre(3));
  EXPECT_TRUE(scene.coordinator.alone(0));
}

ControlMessage stalled_among(int rank, const std::vector<int>& members) {
  ControlMessage out = message(Kind::stalled, rank, "sum of 8");
  const Blob ranges = encode_ranks(members);
  out.text.assign(reinterpret_cast<const char*>(ranges.data()), ranges.size());
  return out;
}

TEST(Coordinator, asks_only_members_of_what_is_stalled) {
  Scene scene(6);
  scene.admit_all();
  scene.say(4, stalled_among(4, {1, 2, 4}));
  EXPECT_THAT(scene.only<ControlMessage>().first, ElementsAre(1, 2));
  scene.say(0, message(Kind::answer, 0, "max of 9"));  // nobody asked it
  scene.say(1, message(Kind::answer, 1, "sum of 8"));
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
  scene.say(2, message(Kind::answer, 2, "", 1));
  const auto [to, verdict] = scene.only<ControlMessage>();
  EXPECT_THAT(to, ElementsAre(4));
  EXPECT_EQ(decode_lateness(verdict.payload), (Lateness{{2}, {}}));
  // One who speaks for others than itself, or in riddles, has everybody asked.
  for (ControlMessage odd : {stalled_among(0, {1, 2}), message(Kind::stalled, 0, "sum of 8")}) {
    odd.sequence += odd.text.empty() ? 1 : 2;
    odd.text += odd.text.empty() ? "?" : "";
    scene.say(0, odd);
    EXPECT_THAT(scene.only<ControlMessage>().first, ElementsAre(1, 2, 3, 4, 5));
  }
}

TEST(Coordinator, waits_no_longer_for_whoever_goes_while_it_asks) {
  Scene scene(4);
  scene.admit_all();
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  scene.say(1, message(Kind::answer, 1, "barrier"));
  scene.say(3, message(Kind::farewell, 3));
  scene.coordinator.take();
  scene.say(2, message(Kind::answer, 2, "barrier"));
  EXPECT_THAT(decode_lateness(scene.only<ControlMessage>().second.payload).silent, ElementsAre(3));
}

TEST(Coordinator, compares_the_calls_of_thousands_of_ranks_in_no_time) {
  constexpr int ranks = 16'384;
  Scene scene(ranks);
  scene.admit_all();
  scene.say(0, message(Kind::stalled, 0, "barrier"));
  scene.coordinator.take();
  for (int rank = 1; rank < ranks; ++rank) {
    scene.say(rank, message(Kind::answer, rank, rank % 2 == 0 ? "barrier" : "all_reduce"));
  }
  const ControlMessage verdict = scene.only<ControlMessage>().second;
  EXPECT_EQ(verdict.text, "rank 0 called barrier; rank 1 called all_reduce");
}

TEST(Coordinator, takes_no_frames_that_only_the_coordinator_sends) {
  Scene scene(2);
  scene.admit_all();
  for (const Frame& frame : {Frame(Welcome{}), Frame(Refusal{}), Frame(Parts{}), Frame(Hello{})}) {
    EXPECT_FALSE(scene.coordinator.received(1, frame, scene.now)) << frame.index();
  }
  scene.say(1, message(Kind::verdict, 0));
  scene.say(1, message(Kind::query, 0));
  scene.say(1, message(Kind::lost, 2));
  scene.say(1, message(Kind::lost, -5));
  EXPECT_THAT(scene.coordinator.take(), IsEmpty());
}

}  // namespace
}  // namespace sprat::comm
