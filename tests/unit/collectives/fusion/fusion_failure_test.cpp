// Fusion: what ranks that disagree, call wrongly, give up or stay away are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sprat/fusion.hpp"

namespace sprat {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// "code: message" of what `call` throws; empty if nothing.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(name(error.code())) + ": " + error.what();
  }
  return "";
}

std::string failure_text(const Communicator& ranks) {
  return error_of([&] { throw *ranks.failure(); });
}

/// What each of three ranks hears: what `body` returns, or the error that it throws.
std::vector<std::string> heard(const char* hosts,
                               const std::function<std::string(Communicator&)>& body) {
  Config config;
  config.host = hosts;
  config.timeout = 60s;
  std::vector<std::string> messages(3);
  run_virtual_ranks(3, config, [&](Communicator& world) {
    world.barrier();  // everybody has joined: a failure would end the joining of others
    std::string& mine = messages[static_cast<std::size_t>(world.rank())];
    const std::string error = error_of([&] { mine = body(world); });
    if (!error.empty()) {
      mine = error;
    }
  });
  return messages;
}

const std::vector<FusionParameter> four(4, {10, DType::f32});

void put_all(Fusion& fusion, std::vector<float>& data) {
  for (std::size_t index = 0; index < 4; ++index) {
    fusion.put(index, elements(std::span(data).subspan(10 * index, 10)));
  }
}

TEST(FusionMismatch, of_terms_names_the_rank_and_the_index) {
  struct Case {
    std::vector<FusionParameter> parameters;
    FusionOptions options;
    const char *odd, *usual;
  };
  std::vector<FusionParameter> count = four, dtype = four, more = four;
  count[2].count = 11;
  dtype[1].dtype = DType::i32;
  more.push_back({5, DType::f64});
  const Case cases[] = {
      {count, {}, "parameter 2 of 11 f32", "parameter 2 of 10 f32"},
      {dtype, {}, "parameter 1 of 10 i32", "parameter 1 of 10 f32"},
      {more, {}, "parameter 4 of 5 f64", "nothing more"},
      {four, {.bucket_bytes = 9}, "buckets of 9 bytes, sum", "buckets of 26214400 bytes, sum"},
      {four,
       {.op = ReduceOp::avg},
       "buckets of 26214400 bytes, avg",
       "buckets of 26214400 bytes, sum"}};
  for (const char* hosts : {"", "a,a,b"}) {
    for (const Case& one : cases) {
      const auto messages = heard(hosts, [&](Communicator& world) {
        const bool odd = world.rank() == 1;
        return error_of([&] {
          Fusion(world, odd ? one.parameters : four, odd ? one.options : FusionOptions{});
        });
      });
      for (const std::string& message : messages) {
        EXPECT_THAT(message, AllOf(StartsWith("mismatch: "), HasSubstr("rank 1"),
                                   HasSubstr(std::string(" makes it with ") + one.odd),
                                   HasSubstr(std::string(" with ") + one.usual)));
      }
    }
  }
}

TEST(FusionMismatch, of_absence_names_indices_and_ranks_and_ends_the_job) {
  for (const char* hosts : {"", "a,b,b"}) {
    for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{1} << 20}) {
      const auto messages = heard(hosts, [&](Communicator& world) {
        Fusion fusion(world, four, {.bucket_bytes = bucket_bytes});
        std::vector<float> data(40, 1.0f);
        const int me = world.rank();
        for (std::size_t index = 0; index < 4; ++index) {
          const bool absent = index == 3 || (index == 0 && me > 0) || (index == 1 && me == 1);
          if (!absent) {
            fusion.put(index, elements(std::span(data).subspan(10 * index, 10)));
          }
        }
        const std::string flushed = error_of([&] { fusion.flush(); });
        EXPECT_THAT(error_of([&] { fusion.put(0, fusion.slot(0)); }), StartsWith("mismatch: "));
        EXPECT_THAT(error_of([&] { fusion.flush(); }), StartsWith("mismatch: "));
        return flushed;
      });
      for (const std::string& message : messages) {
        EXPECT_THAT(message, AllOf(StartsWith("mismatch: "),
                                   HasSubstr("parameter 1 on rank 1; parameter 0 on ranks 1, 2")));
      }
    }
  }
}

TEST(FusionContract, is_held_before_anything_is_changed) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    const auto refused = [&](const std::function<void()>& call, const std::string& why) {
      EXPECT_THAT(error_of(call), AllOf(StartsWith("invalid argument: "), HasSubstr(why)));
    };
    refused([&] { Fusion(world, four, {.bucket_bytes = 0}); }, "bucket_bytes is 0");
    refused([&] { Fusion(world, four, {.op = ReduceOp::max}); }, "op is max; a Fusion takes sum");
    refused([&] { Fusion(world, {{1, DType::boolean}}, {.op = ReduceOp::avg}); }, "avg does not");
    Fusion fusion(world, four);
    std::vector<float> data(40, 1.0f);
    std::vector<double> wide(10);
    refused([&] { fusion.put(4, elements(data)); }, "index is 4; there are 4 parameters");
    refused([&] { fusion.slot(4); }, "index is 4; there are 4 parameters");
    refused([&] { fusion.put(1, elements(data)); }, "parameter 1 is put as 40 f32; ");
    refused([&] { fusion.put(1, elements(wide)); }, "parameter 1 is put as 10 f64; ");
    refused([&] { fusion.put(1, {nullptr, 10, DType::f32}); }, "data is null");
    refused([&] { fusion.put(1, fusion.slot(2)); }, "but not in slot(1)");
    put_all(fusion, data);
    refused([&] { fusion.put(2, fusion.slot(2)); }, "parameter 2 is put twice in a step");
    EXPECT_THAT(fusion.flush(), IsEmpty());
    EXPECT_EQ(data, std::vector<float>(40, 2.0f)) << "on rank " << world.rank();
  });
}

TEST(FusionContract, lets_nobody_put_or_flush_beside_a_flush) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    Fusion fusion(world, four);
    std::vector<float> data(40, 1.0f);
    put_all(fusion, data);
    world.barrier();
    if (world.rank() == 0) {
      std::thread flush([&] { fusion.flush(); });
      // Until the other thread has begun, this is refused for another reason.
      std::string second;
      while (second.find("flush() is under way") == std::string::npos) {
        second = error_of([&] { fusion.put(0, fusion.slot(0)); });
        ASSERT_THAT(second, StartsWith("invalid argument: "));
      }
      EXPECT_THAT(error_of([&] { fusion.flush(); }), HasSubstr("under way in another thread"));
      world.barrier();
      flush.join();
    } else {
      world.barrier();
      fusion.flush();
    }
    EXPECT_EQ(data, std::vector<float>(40, 2.0f)) << "on rank " << world.rank();
  });
}

TEST(FusionFailure, a_buffer_starts_before_flush_and_has_a_deadline) {
  const auto messages = heard("", [](Communicator& world) {
    Fusion fusion(world, four, {.bucket_bytes = 1, .timeout = 1s});
    if (world.rank() > 0) {
      fusion.put(0, fusion.slot(0));
    }
    while (!world.failure()) {
      std::this_thread::yield();
    }
    return failure_text(world);
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message, AllOf(StartsWith("timeout: "), HasSubstr("all_reduce of 10 f32"),
                               HasSubstr("world.fusion"), HasSubstr("rank 0")));
  }
}

TEST(FusionFailure, who_does_not_flush_is_named) {
  const auto messages = heard("", [](Communicator& world) {
    Fusion fusion(world, four, {.timeout = 1s});
    if (world.rank() != 2) {
      fusion.flush();
    }
    while (!world.failure()) {
      std::this_thread::yield();
    }
    return failure_text(world);
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message, AllOf(StartsWith("timeout: "), HasSubstr("rank 2")));
  }
}

TEST(FusionFailure, an_abort_ends_the_step_and_later_ones) {
  const auto messages = heard("a,a,b", [](Communicator& world) {
    Fusion fusion(world, four, {.bucket_bytes = 1});
    std::vector<float> data(40);
    world.barrier();
    if (world.rank() == 1) {
      world.abort("no more");
    } else {
      put_all(fusion, data);
    }
    const std::string flushed = error_of([&] { fusion.flush(); });
    EXPECT_THAT(error_of([&] { put_all(fusion, data); }), HasSubstr("no more"));
    return flushed;
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message, AllOf(StartsWith("aborted: "), HasSubstr("no more")));
  }
}

TEST(FusionFailure, destroying_it_in_the_midst_of_a_step_aborts_the_job) {
  const auto messages = heard("", [](Communicator& world) {
    std::vector<float> data(40);
    std::optional<Fusion> fusion(std::in_place, world, four);
    if (world.rank() == 1) {
      for (const std::size_t index : {0, 1, 3}) {
        fusion->put(index, elements(std::span(data).subspan(10 * index, 10)));
      }
      fusion.reset();
      return failure_text(world);
    }
    put_all(*fusion, data);
    return error_of([&] { fusion->flush(); });
  });
  for (const std::string& message : messages) {
    EXPECT_THAT(message, AllOf(StartsWith("aborted: "), HasSubstr("rank 1 aborted the job"),
                               HasSubstr("world.fusion"), HasSubstr("parameters 0, 1, 3 put")));
  }
}

TEST(FusionFailure, a_step_of_which_nothing_was_put_may_be_left) {
  run_virtual_ranks(2, Config(), [](Communicator& world) {
    { Fusion fusion(world, four); }
    world.barrier();
    EXPECT_FALSE(world.failure());
  });
}

TEST(FusionFailure, a_forked_child_is_refused) {
  Config alone;
  alone.size = 1;
  alone.rank = 0;
  auto world = Communicator::join(alone);
  std::optional<Fusion> fusion(std::in_place, world, four);
  fusion->put(0, fusion->slot(0));
  const pid_t child = fork();
  if (child == 0) {
    const bool put = error_of([&] { fusion->put(1, fusion->slot(1)); }).find("unavailable: ") == 0;
    const bool flush = error_of([&] { fusion->flush(); }).find("was forked") != std::string::npos;
    fusion.reset();
    _exit(put && flush ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  fusion->put(1, fusion->slot(1));
  EXPECT_THAT(fusion->flush(), ::testing::ElementsAre(2, 3));
}

}  // namespace
}  // namespace sprat
