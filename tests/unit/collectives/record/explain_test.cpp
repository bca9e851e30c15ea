// explain(): what the records of several ranks say together.
#include "collectives/record/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sprat::collectives {
namespace {

using State = CallState;
using ::testing::ElementsAre;

constexpr double now = 1000;

/// An operation that was called `ago` seconds ago; done ones took a second.
RecordedOperation operation(std::uint64_t sequence, const std::string& call, State state,
                            double ago) {
  return {.sequence = sequence,
          .call = call,
          .signature = call,
          .bytes = 4096,
          .algorithm = "direct",
          .state = state,
          .posted = now - ago,
          .started = state == State::queued ? 0 : now - ago,
          .ended = state == State::done ? now - ago + 1 : 0,
          .late = {},
          .waits_for = {}};
}

/// A communicator of world ranks `ranks`, as rank `world` of the job sees it.
RecordedCommunicator communicator(std::uint64_t id, const std::string& name, int world,
                                  std::vector<int> ranks,
                                  std::vector<RecordedOperation> operations) {
  RecordedCommunicator one{.id = id,
                           .name = name,
                           .rank = 0,
                           .size = static_cast<int>(ranks.size()),
                           .world_ranks = std::move(ranks),
                           .posted = 0,
                           .ended = 0,
                           .operations = std::move(operations),
                           .messages = {}};
  for (int rank = 0; rank < one.size; ++rank) {
    one.rank = one.world_ranks[rank] == world ? rank : one.rank;
  }
  for (const auto& last : one.operations) {
    one.posted = last.sequence + 1;
    one.ended += last.state == State::done ? 1 : 0;
  }
  return one;
}

FlightRecord record(int rank, std::vector<RecordedCommunicator> communicators) {
  FlightRecord made;
  made.rank = rank;
  made.size = 4;
  made.host = "host7";
  made.job = "42-host7";
  made.waiting_threads = 1;
  made.taken = now;
  made.communicators = std::move(communicators);
  return made;
}

FlightRecord on_world(int rank, std::vector<RecordedOperation> operations, int size = 4) {
  std::vector<int> ranks;
  for (int world = 0; world < size; ++world) {
    ranks.push_back(world);
  }
  return record(rank, {communicator(0, "world", rank, ranks, std::move(operations))});
}

const std::string all_gather_call = "all_gather of 8 f32",
                  all_reduce_call = "all_reduce of 1024 f32, sum";

struct ExplainedCase {
  const char* name;
  std::vector<FlightRecord> records;
  std::vector<std::string> lines;
};

FlightRecord accusing(FlightRecord accuser, std::vector<int> late, std::vector<int> waits_for) {
  auto& last = accuser.communicators.front().operations.back();
  last.late = std::move(late);
  last.waits_for = std::move(waits_for);
  return accuser;
}

FlightRecord computing(FlightRecord one) {
  one.waiting_threads = 0;
  return one;
}

FlightRecord with_message(FlightRecord one, bool sends, int peer, State state) {
  one.communicators.front().messages.push_back({.sends = sends,
                                                .peer = peer,
                                                .tag = 7,
                                                .bytes = 64,
                                                .state = state,
                                                .posted = now - 3.1,
                                                .ended = 0});
  return one;
}

std::vector<ExplainedCase> cases() {
  const auto done = operation(0, all_gather_call, State::done, 32.3);
  const auto waits = operation(1, all_reduce_call, State::running, 31.2);
  const auto rows = [](int rank, State state) {
    return communicator(1, "rows", rank, {0, 1}, {operation(0, all_reduce_call, state, 20)});
  };
  const auto columns = [](int rank, State state) {
    return communicator(2, "columns", rank, {0, 1}, {operation(0, "barrier", state, 10)});
  };
  auto other_job = on_world(0, {waits}, 1);
  other_job.job = "7-host1";
  return {
      {"nothing_waits", {on_world(0, {done}, 2), on_world(1, {done}, 2)}, {}},
      {"one_is_late",
       {on_world(0, {done, waits}), on_world(1, {done, waits}), on_world(2, {done}),
        on_world(3, {done, waits})},
       {"world, operation 1: ranks 0, 1, 3 wait in all_reduce of 1024 f32, sum since 31.2 s; rank "
        "2 "
        "is late: its last call was operation 0 (all_gather of 8 f32), done 31.3 s ago"}},
      {"one_has_called_nothing",
       {on_world(0, {operation(0, all_reduce_call, State::running, 4)}, 2), on_world(1, {}, 2)},
       {"world, operation 0: rank 0 waits in all_reduce of 1024 f32, sum since 4.0 s; rank 1 is "
        "late: "
        "it has called nothing on it yet"}},
      {"calls_differ",
       {on_world(0, {done, waits}, 2),
        on_world(1, {done, operation(1, all_gather_call, State::running, 5)}, 2)},
       {"world, operation 1: the calls differ: rank 1 called all_gather of 8 f32; rank 0 called "
        "all_reduce of 1024 f32, sum",
        "world, operation 1: ranks 0, 1 wait in all_reduce of 1024 f32, sum since 31.2 s; every "
        "rank "
        "has called it"}},
      {"a_circle_over_two_communicators",
       {record(0, {rows(0, State::running), communicator(2, "columns", 0, {0, 1}, {})}),
        record(1, {communicator(1, "rows", 1, {0, 1}, {}), columns(1, State::running)})},
       {"a circle: rank 0 waits in operation 0 of rows (all_reduce of 1024 f32, sum) for rank 1; "
        "rank 1 waits in operation 0 of columns (barrier) for rank 0",
        "rows, operation 0: rank 0 waits in all_reduce of 1024 f32, sum since 20.0 s; rank 1 is "
        "late: it has called nothing on it yet, and waits in operation 0 of columns (barrier)",
        "columns, operation 0: rank 1 waits in barrier since 10.0 s; rank 0 is late: it has called "
        "nothing on it yet, and waits in operation 0 of rows (all_reduce of 1024 f32, sum)"}},
      {"no_circle_through_a_rank_that_computes",
       {record(0, {rows(0, State::running), communicator(2, "columns", 0, {0, 1}, {})}),
        computing(record(1, {communicator(1, "rows", 1, {0, 1}, {}), columns(1, State::running)}))},
       {"rows, operation 0: rank 0 waits in all_reduce of 1024 f32, sum since 20.0 s; rank 1 is "
        "late: it has called nothing on it yet, and no thread of it waits in Sprat",
        "columns, operation 0: rank 1 waits in barrier since 10.0 s; rank 0 is late: it has called "
        "nothing on it yet, and waits in operation 0 of rows (all_reduce of 1024 f32, sum)"}},
      {"no_record_of_the_late_one",
       {accusing(on_world(0, {done, waits}, 3), {2}, {}), on_world(1, {done, waits}, 3)},
       {"world, operation 1: ranks 0, 1 wait in all_reduce of 1024 f32, sum since 31.2 s; they say "
        "that rank 2 has not called it",
        "no record of rank 2"}},
      {"all_have_called_and_one_stopped",
       {accusing(on_world(0, {done, waits}, 3), {}, {2}), on_world(1, {done, waits}, 3),
        on_world(2, {done, waits}, 3)},
       {"world, operation 1: ranks 0-2 wait in all_reduce of 1024 f32, sum since 31.2 s; every "
        "rank "
        "has called it; they wait for rank 2 to go on in it"}},
      {"all_have_called_and_wait_along_a_chain",
       {accusing(on_world(0, {done, waits}, 3), {}, {1}),
        accusing(on_world(1, {done, waits}, 3), {}, {2}), on_world(2, {done, waits}, 3)},
       {"world, operation 1: ranks 0-2 wait in all_reduce of 1024 f32, sum since 31.2 s; every "
        "rank has called it; they wait for rank 2 to go on in it"}},
      {"the_stopped_one_tells_of_a_rank_that_is_through",
       {accusing(on_world(0, {done, waits}, 3), {}, {2}),
        on_world(1, {done, operation(1, all_reduce_call, State::done, 31.2)}, 3),
        accusing(on_world(2, {done, waits}, 3), {}, {1})},
       {"world, operation 1: ranks 0, 2 wait in all_reduce of 1024 f32, sum since 31.2 s; every "
        "rank has called it; they wait for rank 2 to go on in it; rank 1 is through"}},
      {"all_have_called_and_wait_in_a_circle",
       {accusing(on_world(0, {done, waits}, 2), {}, {1}),
        accusing(on_world(1, {done, waits}, 2), {}, {0})},
       {"world, operation 1: ranks 0, 1 wait in all_reduce of 1024 f32, sum since 31.2 s; every "
        "rank has called it; they wait for ranks 0, 1 to go on in it"}},
      {"one_is_behind_with_more_queued",
       {on_world(0, {done, waits}, 2), on_world(1,
                                                {operation(0, all_gather_call, State::running, 32),
                                                 operation(1, all_reduce_call, State::queued, 30)},
                                                2)},
       {"world, operation 0: rank 1 waits in all_gather of 8 f32 since 32.0 s; every rank has "
        "called "
        "it; rank 0 is through",
        "world, operation 1: rank 0 waits in all_reduce of 1024 f32, sum since 31.2 s; rank 1 is "
        "behind, in operation 0 (all_gather of 8 f32)"}},
      {"a_message_without_its_send",
       {with_message(on_world(0, {}, 2), false, 1, State::running), on_world(1, {done}, 2)},
       {"world: rank 0 waits in recv from rank 1 with tag 7 (64 bytes) since 3.1 s; rank 1 has no "
        "send for it under way"}},
      {"two_receives_face_to_face",
       {with_message(on_world(0, {}, 2), false, 1, State::running),
        with_message(on_world(1, {}, 2), false, 0, State::running)},
       {"a circle: rank 0 waits in recv from rank 1 with tag 7 on world for rank 1; rank 1 waits "
        "in "
        "recv from rank 0 with tag 7 on world for rank 0",
        "world: rank 0 waits in recv from rank 1 with tag 7 (64 bytes) since 3.1 s; rank 1 has no "
        "send for it under way",
        "world: rank 1 waits in recv from rank 0 with tag 7 (64 bytes) since 3.1 s; rank 0 has no "
        "send for it under way"}},
      {"a_send_under_way",
       {with_message(on_world(0, {}, 2), true, 1, State::running),
        with_message(on_world(1, {}, 2), false, 0, State::running)},
       {"world: rank 0 waits in send to rank 1 with tag 7 (64 bytes) since 3.1 s; both sides have "
        "called it",
        "world: rank 1 waits in recv from rank 0 with tag 7 (64 bytes) since 3.1 s; both sides "
        "have "
        "called it"}},
      {"jobs_are_kept_apart",
       {on_world(0, {done}, 1), other_job},
       {"job 7-host1: world, operation 1: rank 0 waits in all_reduce of 1024 f32, sum since 31.2 "
        "s; "
        "every rank has called it"}},
  };
}

TEST(Explain, says_who_waits_for_whom) {
  for (const ExplainedCase& one : cases()) {
    EXPECT_EQ(explain(one.records), one.lines) << one.name;
  }
}

TEST(Explain, a_rank_s_latest_record_counts) {
  auto early = on_world(0, {operation(0, all_gather_call, State::running, 5)}, 1);
  auto latest = on_world(0, {operation(0, all_gather_call, State::done, 5)}, 1);
  early.taken = now - 1;
  EXPECT_THAT(explain(std::vector{early, latest}), ElementsAre());
  EXPECT_THAT(explain(std::vector{latest, early}), ElementsAre());
}

TEST(Explain, a_detail_that_the_words_do_not_show_is_shown_by_its_signature) {
  auto other = operation(0, all_gather_call, State::running, 5);
  other.signature = "00ff";
  const auto lines = explain(std::vector{
      on_world(0, {operation(0, all_gather_call, State::running, 5)}, 2), on_world(1, {other}, 2)});
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(
      lines.front(),
      "world, operation 0: the calls differ: rank 1 called all_gather of 8 f32 (signature 00ff); "
      "rank 0 called all_gather of 8 f32 (signature all_gather of 8 f32)");
}

TEST(Explain, believes_no_number_of_a_record) {
  auto wild = on_world(2'000'000'000, {operation(~0ull, all_gather_call, State::running, -5)}, 2);
  wild.communicators.front().rank = -7;
  wild.communicators.front().size = 1 << 30;
  wild.communicators.front().world_ranks = {-3, 1 << 30};
  wild.communicators.front().operations.back().late = {-1, 1 << 30};
  EXPECT_FALSE(explain(std::vector{wild, on_world(0, {}, 2)}).empty());
}

}  // namespace
}  // namespace sprat::collectives
