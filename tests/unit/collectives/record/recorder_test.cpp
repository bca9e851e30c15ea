// What a running communicator shows of itself, leaves when it fails, and says of stragglers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include "collectives/record/explain.hpp"
#include "collectives/record/flight_record.hpp"
#include "comm/base/log.hpp"
#include "sprat/communicator.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;
using State = CallState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Config quick() {
  Config config;
  config.timeout = 20s;
  return config;
}

FlightRecord record_of(int rank) {
  for (FlightRecord& record : flight_records_of(getpid())) {
    if (record.rank == rank) {
      return std::move(record);
    }
  }
  throw Error(ErrorCode::internal, "this rank has no record");
}

const RecordedCommunicator& world_of(const FlightRecord& record) {
  return record.communicators.at(0);
}

/// Looks until it is so; the deadline of the operations in flight ends what never is.
template <class Condition>
void until(const Condition& condition) {
  const auto patience = std::chrono::steady_clock::now() + 15s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > patience) {
      throw Error(ErrorCode::internal, "it never came to be");
    }
    std::this_thread::yield();
  }
}

TEST(Recorder, shows_the_last_operations) {
  run_virtual_ranks(2, quick(), [](Communicator& world) {
    std::vector<float> data(8);
    for (int round = 0; round < 50; ++round) {
      world.all_reduce(elements(data)).wait();
    }
    world.barrier();
    const FlightRecord record = record_of(world.rank());
    const RecordedCommunicator& shown = world_of(record);
    EXPECT_EQ(shown.name, "world");
    EXPECT_EQ(shown.posted, 51u);
    ASSERT_EQ(shown.operations.size(), 32u);
    EXPECT_EQ(shown.operations.front().sequence, 19u);
    EXPECT_EQ(shown.operations.back().call, "barrier");
    const RecordedOperation& one = shown.operations[3];
    EXPECT_EQ(one.call, "all_reduce of 8 f32, sum");
    EXPECT_EQ(one.bytes, 32u);
    EXPECT_EQ(one.state, State::done);
    EXPECT_NE(one.algorithm, "");
    EXPECT_LE(one.posted, one.started);
    EXPECT_LE(one.started, one.ended);
    EXPECT_LE(one.ended, record.taken);
    world.barrier();  // nobody leaves before all have looked
  });
}

TEST(Recorder, keeps_what_hangs_before_what_was_called_later) {
  for (const char* hosts : {"", "a,b"}) {
    Config config = quick();
    config.host = hosts;
    std::atomic<bool> looked = false;
    run_virtual_ranks(2, config, [&](Communicator& world) {
      std::vector<float> data(8 * 100);
      std::vector<Work> works;
      const auto call = [&](int i) {
        works.push_back(world.all_reduce(elements(std::span(data).subspan(8 * i, 8))));
      };
      world.barrier();  // operation 0
      if (world.rank() == 0) {
        for (int i = 0; i < 100; ++i) {
          call(i);
        }
        const FlightRecord record = record_of(0);
        EXPECT_EQ(world_of(record).posted, 101u);
        EXPECT_EQ(world_of(record).ended, 1u);
        ASSERT_EQ(world_of(record).operations.size(), 32u);
        EXPECT_EQ(world_of(record).operations[0].sequence, 1u);
        EXPECT_EQ(world_of(record).operations[0].state, State::running);
        EXPECT_EQ(world_of(record).operations[31].state, State::queued);
        EXPECT_EQ(world_of(record).operations[31].sequence, 32u);
        // The coordinator is asked about an operation that lies 100 calls back.
        until([] { return world_of(record_of(0)).operations[0].late == std::vector{1}; });
        looked = true;
      } else {
        until([&] { return looked.load(); });
        for (int i = 0; i < 100; ++i) {
          call(i);
        }
      }
      for (Work& work : works) {
        work.wait();
      }
      const FlightRecord after = record_of(world.rank());
      EXPECT_EQ(world_of(after).operations.back().sequence, 100u);
      EXPECT_EQ(world_of(after).ended, 101u);
      world.barrier();
    });
  }
}

TEST(Recorder, says_who_is_late) {
  for (const char* hosts : {"", "a,a,b"}) {
    Config config = quick();
    config.host = hosts;
    run_virtual_ranks(3, config, [](Communicator& world) {
      std::vector<float> data(8);
      world.barrier();
      if (world.rank() == 2) {
        const auto knows = [](int rank) {
          const auto last = world_of(record_of(rank)).operations.back();
          return last.sequence == 1 && last.late == std::vector{2};
        };
        until([&] { return knows(0) && knows(1); });
        EXPECT_THAT(
            explain(flight_records_of(getpid())),
            ElementsAre(::testing::AllOf(
                HasSubstr("world, operation 1: ranks 0, 1 wait in all_reduce of 8 f32, sum"),
                HasSubstr("rank 2 is late: its last call was operation 0 (barrier)"))));
      }
      world.all_reduce(elements(data)).wait();
      world.barrier();
    });
  }
}

TEST(Recorder, shows_messages_and_keeps_those_that_hang) {
  run_virtual_ranks(2, quick(), [](Communicator& world) {
    std::vector<float> hanging(4), passing(4);
    const int other = 1 - world.rank();
    Work late;
    if (world.rank() == 0) {
      late = world.recv(elements(hanging), other, 77);
    }
    for (int round = 0; round < 100; ++round) {
      Work sent = world.send(elements(passing), other, 1);
      std::vector<float> got(4);
      world.recv(elements(got), other, 1).wait();
      sent.wait();
    }
    if (world.rank() == 0) {
      const FlightRecord record = record_of(0);
      const auto& messages = world_of(record).messages;
      ASSERT_EQ(messages.size(), 32u);
      EXPECT_EQ(messages.front().tag, 77);
      EXPECT_EQ(messages.front().state, State::running);
      EXPECT_EQ(messages.front().bytes, 16u);
      EXPECT_FALSE(messages.front().sends);
      EXPECT_EQ(messages.back().state, State::done);
      EXPECT_THAT(
          explain(flight_records_of(getpid())),
          ::testing::Contains(HasSubstr("world: rank 0 waits in recv from rank 1 with tag 77")));
    }
    world.barrier();
    if (world.rank() == 1) {
      world.send(elements(hanging), other, 77).wait();
    }
    late.wait();
    world.barrier();
  });
}

TEST(Recorder, shows_communicators_while_they_live) {
  run_virtual_ranks(4, quick(), [](Communicator& world) {
    {
      auto half = world.split(world.rank() / 2, world.rank(), "half");
      half->barrier();
      const FlightRecord record = record_of(world.rank());
      ASSERT_EQ(record.communicators.size(), 2u);
      EXPECT_EQ(record.communicators[1].name, "half");
      EXPECT_EQ(record.communicators[1].rank, world.rank() % 2);
      EXPECT_EQ(record.communicators[1].world_ranks.front(), world.rank() / 2 * 2);
    }
    EXPECT_EQ(record_of(world.rank()).communicators.size(), 1u);
    world.barrier();
  });
}

TEST(FlightFile, is_left_by_each_rank_when_the_job_fails) {
  std::string folder = std::filesystem::temp_directory_path() / "sprat-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Config config = quick();
  config.flight_recorder = folder;
  EXPECT_THROW(run_virtual_ranks(3, config,
                                 [](Communicator& world) {
                                   std::vector<float> data(8);
                                   world.all_reduce(elements(data)).wait();
                                   if (world.rank() == 1) {
                                     throw std::runtime_error("had enough");
                                   }
                                   world.barrier();
                                 }),
               std::exception);
  std::vector<FlightRecord> records;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    records.push_back(read_flight_record_file(entry.path()));
    EXPECT_THAT(records.back().failure, HasSubstr("had enough")) << entry.path();
    EXPECT_EQ(world_of(records.back()).operations.front().call, "all_reduce of 8 f32, sum");
  }
  EXPECT_EQ(records.size(), 3u);
  std::filesystem::remove_all(folder);
}

/// What is logged while it lives.
class Overheard final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  bool has(const std::string& words) { return text().find(words) != std::string::npos; }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    text_.append(message.payload.data(), message.payload.size()).append("\n");
  }
  void flush_() override {}
  std::string text_;
};

TEST(Recorder, warns_of_a_straggler_once_and_tells_when_it_came) {
  const auto overheard = std::make_shared<Overheard>();
  Log::logger().sinks().push_back(overheard);
  Config config = quick();
  config.straggler_after = 1s;
  run_virtual_ranks(3, config, [&](Communicator& world) {
    std::vector<float> data(8);
    world.barrier();
    if (world.rank() == 2) {
      until([&] { return overheard->has("has waited"); });
    }
    world.all_reduce(elements(data)).wait();
    world.barrier();
  });
  Log::logger().sinks().pop_back();
  EXPECT_THAT(overheard->text(),
              ::testing::MatchesRegex(
                  "all_reduce of 8 f32, sum \\(operation 1 of world\\) has waited [0-9.]+ s for "
                  "rank 2\nall_reduce of 8 f32, sum \\(operation 1 of world\\): rank 2 came "
                  "[0-9.]+ s late\n"));
}

}  // namespace
}  // namespace sprat::collectives
