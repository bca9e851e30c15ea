// Lanes on the driver's stand-in: every collective has the host's bits, and no call ever blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <thread>

#include "sprat/communicator.hpp"
#include "tests/gpu/collective_cases.hpp"
#include "tests/system/fake_cuda/fake_cuda.h"
#include "tests/unit/device/allocations.hpp"
#include "tests/unit/device/fake_device.hpp"

namespace sprat::device {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;
using gpu::collective_cases;
using gpu::CollectiveCase;
using gpu::Operands;
using gpu::values_of;

/// Small enough that tests cut, and wait for memory.
constexpr LaneOptions small_lane{.slab_bytes = 256 << 10, .chunk_bytes = 16 << 10};

Config patient() {
  Config config;
  config.timeout = 60s;
  return config;
}

/// One rank of a test: its lane and stream, and the host's communicator to compare with.
struct Bench {
  explicit Bench(Communicator& world_, std::shared_ptr<Device> on = fake_device(),
                 LaneOptions options = small_lane)
      : world(world_),
        own(world_.duplicate("lane")),
        device(std::move(on)),
        lane(own, device, options),
        stream(*device) {}

  Communicator& world;
  Communicator own;
  std::shared_ptr<Device> device;
  DeviceLane lane;
  TestStream stream;
  int root() const { return world.size() - 1; }
};

/// Runs one case both ways on this rank, and compares.
void compare(Bench& bench, const CollectiveCase& test, DType dtype, std::size_t count) {
  const int size = bench.world.size(), rank = bench.world.rank();
  const Operands operands = test.operands(size, rank == bench.root());
  const std::size_t in_count = count * static_cast<std::size_t>(operands.in);
  const std::size_t out_count = count * static_cast<std::size_t>(operands.out);
  Bytes in = values_of(dtype, in_count, rank);
  Bytes wanted(out_count * size_of(dtype));
  test.on_host(bench.world, bench.root(), {in.data(), in_count, dtype},
               {wanted.data(), out_count, dtype})
      .wait();
  const DeviceBytes from(*bench.device, bench.stream, in);
  const DeviceBytes apart(*bench.device, wanted.size());
  const DeviceBytes& to = operands.in_place ? from : apart;
  DeviceWork work = test.on_device(bench.lane, bench.root(), {from.data(), in_count, dtype},
                                   {to.data(), out_count, dtype}, bench.stream);
  work.wait(bench.stream);
  EXPECT_EQ(to.values(bench.stream), wanted) << test.name << " of " << count << ' ' << name(dtype)
                                             << " on rank " << rank << " of " << size;
  EXPECT_TRUE(work.done());
  EXPECT_FALSE(work.failure());
  if (!operands.in_place) {
    EXPECT_EQ(from.values(bench.stream), in) << test.name << " changed its input";
  }
}

class LaneOfRanks : public testing::TestWithParam<int> {};

TEST_P(LaneOfRanks, collectives_have_the_hosts_bits) {
  for (const unsigned seed : {0u, 1u, 2u}) {
    fake_device();
    fake_cuda_seed(seed);
    run_virtual_ranks(GetParam(), patient(), [seed](Communicator& world) {
      Bench bench(world);
      for (const CollectiveCase& test : collective_cases) {
        for (const DType dtype : {DType::f32, DType::bf16, DType::i64, DType::f16}) {
          compare(bench, test, dtype, 1000 + seed);
        }
        compare(bench, test, DType::boolean, 0);
        compare(bench, test, DType::f64, 1);
        compare(bench, test, DType::f32, 20'011);  // in chunks, and more than the slab holds
      }
    });
  }
  fake_cuda_seed(0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, LaneOfRanks, testing::Values(1, 2, 4));

/// `count` numbers of this rank's in device memory, for an all_reduce.
struct Sum {
  Sum(Bench& bench, std::size_t count)
      : values(values_of(DType::f32, count, bench.world.rank())),
        memory(*bench.device, bench.stream, values),
        elements{memory.data(), count, DType::f32} {
    bench.stream.synchronize();
    wanted = values;
    bench.world.all_reduce(Elements{wanted.data(), count, DType::f32}).wait();
  }
  Bytes values;
  DeviceBytes memory;
  Elements elements;
  Bytes wanted;
};

TEST(Lane, calls_and_waits_return_while_every_stream_is_held) {
  run_virtual_ranks(2, patient(), [](Communicator& world) {
    Bench bench(world);
    TestStream other(*bench.device);
    Gate gate(*bench.device);
    Sum first(bench, 5000), second(bench, 200'000), third(bench, 7);
    const int waits = fake_cuda_waits();
    world.barrier();  // nobody waits for the stand-in from here on
    gate.hold(bench.stream);
    gate.hold(other);
    std::vector<DeviceWork> works;
    for (const Sum* sum : {&first, &second, &third}) {
      works.push_back(
          bench.lane.all_reduce(sum->elements, sum->elements, ReduceOp::sum, bench.stream));
      works.back().wait(other);
      works.back().wait(bench.stream);
    }
    EXPECT_FALSE(works.front().done());
    EXPECT_EQ(fake_cuda_waits(), waits);
    world.barrier();
    gate.open();
    for (const Sum* sum : {&first, &second, &third}) {
      EXPECT_EQ(sum->memory.values(other), sum->wanted);
    }
    for (DeviceWork& work : works) {
      work.synchronize();
    }
  });
}

TEST(Lane, a_caller_allocates_nothing_once_as_much_was_under_way) {
  run_virtual_ranks(2, patient(), [](Communicator& world) {
    // The stand-in's own queues allocate on the caller's thread.
    Bench bench(world, std::make_shared<CountingDevice>(fake_device()));
    const Sum sum(bench, 30'000);
    // How much is under way at once differs from round to round where the lane's thread comes late:
    // a lane that allocated in every call would do so in every round.
    long fewest = std::numeric_limits<long>::max();
    for (int round = 0; round < 20; ++round) {
      const long before = allocations_here() - CountingDevice::allocations();
      for (int i = 0; i < 4; ++i) {
        DeviceWork work =
            bench.lane.all_reduce(sum.elements, sum.elements, ReduceOp::max, bench.stream);
        work.wait(bench.stream);
      }
      fewest = std::min(fewest, allocations_here() - CountingDevice::allocations() - before);
      bench.lane.settle();
    }
    EXPECT_EQ(fewest, 0);
  });
}

/// A caller in the driver, in a copy to memory that is not pinned, may hold its lock until the
/// operation before has ended.
TEST(Lane, an_operation_ends_while_its_caller_has_the_driver) {
  run_virtual_ranks(2, patient(), [](Communicator& world) {
    fake_cuda_lock_in_waits(1);
    Bench bench(world, fake_device(world.rank()));
    for (const std::size_t count : {std::size_t{10}, std::size_t{200'000}}) {
      const Sum sum(bench, count);
      bench.lane.all_reduce(sum.elements, sum.elements, ReduceOp::sum, bench.stream)
          .wait(bench.stream);
      EXPECT_EQ(sum.memory.values(bench.stream), sum.wanted);
    }
    bench.lane.settle();
    world.barrier();
    fake_cuda_lock_in_waits(0);
  });
}

TEST(Lane, communicators_in_opposite_order_on_two_streams_do_not_deadlock) {
  run_virtual_ranks(2, patient(), [](Communicator& world) {
    Bench one(world), two(world);
    for (int round = 0; round < 5; ++round) {
      const Sum a(one, 3000), b(two, 3000);
      world.barrier();
      Bench& first = world.rank() == 0 ? one : two;
      Bench& second = world.rank() == 0 ? two : one;
      for (Bench* const bench : {&first, &second}) {
        const Sum& sum = bench == &one ? a : b;
        bench->lane.all_reduce(sum.elements, sum.elements, ReduceOp::sum, bench->stream)
            .wait(bench->stream);
      }
      EXPECT_EQ(a.memory.values(one.stream), a.wanted);
      EXPECT_EQ(b.memory.values(two.stream), b.wanted);
    }
  });
}

/// The operation has failed, and the stream that waits for it goes on.
void expect_failure(DeviceWork& work, Bench& bench, ErrorCode code) {
  try {
    work.synchronize();
    ADD_FAILURE() << "rank " << bench.world.rank() << " did not fail";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << "rank " << bench.world.rank() << ": " << error.what();
  }
  EXPECT_TRUE(work.done());
  EXPECT_TRUE(work.failure());
  EXPECT_THROW(work.wait(bench.stream), Error);
}

TEST(Lane, a_communicator_that_is_revoked_or_aborted_releases_every_stream) {
  for (const bool aborts : {false, true}) {
    run_virtual_ranks(2, patient(), [aborts](Communicator& world) {
      Bench bench(world);
      const Sum sum(bench, 50'000), other(bench, 10);
      world.barrier();
      if (world.rank() == 0) {
        // Rank 1 never comes, and the one after that waits for memory or for its turn.
        DeviceWork first =
            bench.lane.all_reduce(sum.elements, sum.elements, ReduceOp::sum, bench.stream);
        first.wait(bench.stream);
        DeviceWork second =
            bench.lane.all_reduce(other.elements, other.elements, ReduceOp::sum, bench.stream);
        second.wait(bench.stream);
        world.barrier();
        bench.stream.synchronize();
        expect_failure(first, bench, ErrorCode::aborted);
        expect_failure(second, bench, ErrorCode::aborted);
      } else {
        world.barrier();
        aborts ? bench.own.abort("enough") : bench.own.revoke("enough");
      }
      world.barrier();  // it fails alone
    });
  }
}

TEST(Lane, an_operation_that_is_late_releases_its_stream) {
  run_virtual_ranks(2, patient(), [](Communicator& world) {
    Bench bench(world);
    const Sum sum(bench, 100);
    if (world.rank() == 0) {
      DeviceWork work = bench.lane.all_reduce(sum.elements, sum.elements, ReduceOp::sum,
                                              bench.stream, {.timeout = 100ms});
      work.wait(bench.stream);
      bench.stream.synchronize();
      expect_failure(work, bench, ErrorCode::timeout);
    }
    world.barrier();
  });
}

/// One that cannot start; the other ranks' would wait for it.
using StartsBadly = DeviceWork (*)(Bench& bench, const Sum& sum);

DeviceWork refuses(Bench& bench, const Sum&) {
  return bench.lane.run(
      {.stream = bench.stream, .name = "refuses", .start = [](auto, auto) -> Work {
         throw Error(ErrorCode::invalid_argument, "no such thing");
       }});
}
DeviceWork has_no_memory(Bench& bench, const Sum&) {
  return bench.lane.run(
      {.stream = bench.stream,
       .name = "has no memory",
       .begin = [](auto, auto, DeviceCall::Ended) -> void { throw std::bad_alloc(); }});
}
DeviceWork has_no_such_operation(Bench& bench, const Sum& sum) {
  return bench.lane.all_reduce(sum.elements, sum.elements, ReduceOp::bxor, bench.stream);
}

TEST(Lane, what_cannot_start_on_one_rank_fails_on_all) {
  for (const StartsBadly starts_badly : {refuses, has_no_memory, has_no_such_operation}) {
    run_virtual_ranks(2, patient(), [starts_badly](Communicator& world) {
      Bench bench(world);
      const Sum sum(bench, 100);
      DeviceWork work = world.rank() == 0 ? starts_badly(bench, sum)
                                          : bench.lane.all_reduce(sum.elements, sum.elements,
                                                                  ReduceOp::sum, bench.stream);
      EXPECT_THROW(work.synchronize(), Error) << world.rank();
      bench.stream.synchronize();
      world.barrier();
      ASSERT_TRUE(bench.own.failure()) << world.rank();
      EXPECT_NE(std::string(bench.own.failure()->what()).find("rank 0 of"), std::string::npos)
          << bench.own.failure()->what();
    });
  }
}

TEST(Lane, a_refused_copy_fails_on_all_ranks_and_no_stream_stays) {
  for (const bool breaks : {false, true}) {
    run_virtual_ranks(2, patient(), [breaks](Communicator& world) {
      Bench bench(world, fake_device(world.rank()));
      const Sum sum(bench, 20'000);
      world.barrier();
      if (world.rank() == 0) {
        breaks ? fake_cuda_break_at_copy(3) : fake_cuda_refuse_copy(3);
      }
      world.barrier();
      std::optional<DeviceWork> work;
      try {
        work = bench.lane.all_reduce(sum.elements, sum.elements, ReduceOp::sum, bench.stream);
        work->wait(bench.stream);
      } catch (const Error& error) {
        // The other rank's failure, or a device that is broken, may be known at once.
        EXPECT_TRUE(breaks || bench.own.failure()) << error.what();
      }
      if (work) {
        EXPECT_THROW(work->synchronize(), Error) << world.rank();
        EXPECT_TRUE(work->done());
      }
      bench.lane.settle();
      world.barrier();
      if (world.rank() == 0) {
        fake_cuda_mend();
      }
      world.barrier();
    });
  }
}

TEST(Lane, memory_may_be_freed_behind_the_wait) {
  run_virtual_ranks(2, patient(), [](Communicator& world) {
    Bench bench(world);
    TestStream freeing(*bench.device);
    for (int round = 0; round < 10; ++round) {
      auto sum = std::make_unique<Sum>(bench, 9000);
      DeviceWork work =
          bench.lane.all_reduce(sum->elements, sum->elements, ReduceOp::sum, bench.stream);
      work.wait(freeing);
      freeing.synchronize();
      EXPECT_EQ(sum->memory.values(freeing), sum->wanted);
      sum.reset();  // the stand-in's copies would find it poisoned, and break
    }
    bench.lane.settle();
    bench.stream.synchronize();
  });
}

/// Of the runtime, which the stand-in has beside the driver.
extern "C" int cudaMallocManaged(void** memory, std::size_t bytes, unsigned flags);
extern "C" int cudaStreamBeginCapture(void* stream, int mode);
extern "C" int cudaStreamEndCapture(void* stream, void** graph);

TEST(Lane, what_a_lane_does_not_serve_is_refused_by_a_sentence) {
  run_virtual_ranks(1, patient(), [](Communicator& world) {
    Bench bench(world);
    const DeviceBytes elsewhere(*fake_device(1), 64);
    const Elements wrong{elsewhere.data(), 16, DType::f32};
    const auto refusal = [&](const std::function<void()>& call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        return error.what();
      }
      return "";
    };
    EXPECT_EQ(refusal([&] { bench.lane.all_reduce(wrong, wrong, ReduceOp::sum, bench.stream); }),
              "all_reduce: memory of device 1 on a lane of cuda:0 (stand-in); each device has a "
              "lane of its own");
    EXPECT_NE(refusal([&] { bench.lane.run({.stream = bench.stream, .name = "nothing"}); }), "");
    EXPECT_NE(refusal([&] { bench.lane.broadcast({}, {}, 1, bench.stream); }), "");
    const Elements none{nullptr, 0, DType::f32};
    EXPECT_NE(refusal([&] { bench.lane.send(none, 1, 0, bench.stream); }), "");
    EXPECT_NE(refusal([&] { bench.lane.recv(none, any_source, -1, bench.stream); }), "");
    EXPECT_FALSE(world.failure()) << "what a rank is told in the call is its own affair";
    ASSERT_EQ(cudaStreamBeginCapture(bench.stream, 0), 0);
    EXPECT_NE(refusal([&] { bench.lane.barrier(bench.stream); }).find("captured into a graph"),
              std::string::npos);
    void* graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(bench.stream, &graph), 0);
    bench.lane.barrier(bench.stream).synchronize();
  });
}

TEST(Lane, each_device_of_a_process_has_its_lane) {
  run_virtual_ranks(2, patient(), [](Communicator& world) {
    Bench bench(world, fake_device(world.rank()));
    for (const CollectiveCase& test : collective_cases) {
      compare(bench, test, DType::f32, 3000);
    }
  });
}

// Only the root says into what type, and others may give nothing at all.
TEST(Lane, a_reduce_is_cut_alike_whatever_its_root_makes_of_it) {
  constexpr std::size_t count = 20'011;  // in chunks
  run_virtual_ranks(3, patient(), [](Communicator& world) {
    Bench bench(world);
    Bytes in = values_of(DType::bf16, count, world.rank());
    const DeviceBytes from(*bench.device, bench.stream, in);
    const bool is_root = world.rank() == bench.root();
    Bytes wanted(is_root ? count * sizeof(float) : 0);
    const DeviceBytes to(*bench.device, wanted.size());
    const ConstElements host{in.data(), count, DType::bf16};
    world.reduce(host, {wanted.data(), is_root ? count : 0, DType::f32}, bench.root()).wait();
    bench.lane
        .reduce({from.data(), count, DType::bf16},
                is_root ? Elements{to.data(), count, DType::f32} : Elements{}, bench.root(),
                ReduceOp::sum, bench.stream)
        .synchronize();
    EXPECT_EQ(to.values(bench.stream), wanted) << "rank " << world.rank();
  });
}

TEST(Lane, memory_of_the_host_is_taken_too) {
  run_virtual_ranks(2, patient(), [](Communicator& world) {
    Bench bench(world);
    const Sum sum(bench, 30'000);
    Bytes host = sum.values;
    Gate gate(*bench.device);
    gate.hold(bench.stream);
    DeviceWork work =
        bench.lane.all_reduce({host.data(), 30'000, DType::f32}, {host.data(), 30'000, DType::f32},
                              ReduceOp::sum, bench.stream);
    EXPECT_EQ(host, sum.values) << "it is in the order of the stream";
    gate.open();
    work.synchronize();
    EXPECT_EQ(host, sum.wanted);
  });
}

TEST(Lane, managed_memory_is_taken_too) {
  run_virtual_ranks(2, patient(), [](Communicator& world) {
    Bench bench(world);
    const Sum sum(bench, 1000);
    void* managed = nullptr;
    ASSERT_EQ(cudaMallocManaged(&managed, sum.values.size(), 1), 0);
    EXPECT_EQ(bench.device->memory_of(managed).kind, MemoryKind::managed);
    std::memcpy(managed, sum.values.data(), sum.values.size());
    const Elements all{managed, 1000, DType::f32};
    bench.lane.all_reduce(all, all, ReduceOp::sum, bench.stream).synchronize();
    EXPECT_EQ(std::memcmp(managed, sum.wanted.data(), sum.wanted.size()), 0);
    bench.device->free(managed);
  });
}

TEST(Lane, messages_of_one_exchange_go_in_one_call) {
  run_virtual_ranks(2, patient(), [](Communicator& world) {
    Bench bench(world);
    constexpr std::size_t bytes = 200 << 10;  // both together are more than the slab holds
    const int peer = 1 - world.rank();
    const DeviceBytes sent(*bench.device, bench.stream, values_of(DType::u8, bytes, world.rank()));
    const DeviceBytes got(*bench.device, bytes);
    for (int round = 0; round < 3; ++round) {
      const ConstDeviceBuffer in{sent.data(), bytes};
      const DeviceBuffer out{got.data(), bytes};
      bench.lane
          .run({.inputs = {&in, 1},
                .outputs = {&out, 1},
                .stream = bench.stream,
                .name = "exchange",
                .start =
                    [&](DeviceCall::Inputs inputs, DeviceCall::Outputs outputs) {
                      return all_of({bench.own.send({inputs[0], bytes, DType::u8}, peer),
                                     bench.own.recv({outputs[0], bytes, DType::u8}, peer)});
                    }})
          .synchronize();
      EXPECT_EQ(got.values(bench.stream), values_of(DType::u8, bytes, peer));
    }
    bench.lane.send({sent.data(), 9, DType::u8}, peer, 5, bench.stream);
    bench.lane.recv({got.data(), 9, DType::u8}, peer, 5, bench.stream).wait(bench.stream);
    bench.lane.settle();  // the memory is freed here
  });
}

TEST(Lane, stand_ins_of_a_call_begin_at_lines_of_any_cache) {
  run_virtual_ranks(1, patient(), [](Communicator& world) {
    Bench bench(world);
    const Bytes values = values_of(DType::u8, 1000, 0);
    const DeviceBytes first(*bench.device, bench.stream, values);
    const DeviceBytes second(*bench.device, bench.stream, values);
    const DeviceBytes third(*bench.device, 1000), fourth(*bench.device, 1000);
    // As coalesced tensors of several types are: no length is a multiple of another's elements.
    const std::vector<ConstDeviceBuffer> in = {{first.data(), 3}, {second.data(), 301}};
    const std::vector<DeviceBuffer> out = {{third.data(), 5}, {fourth.data(), 257}};
    std::vector<const void*> given;
    bench.lane
        .run({.inputs = in,
              .outputs = out,
              .stream = bench.stream,
              .name = "packed",
              .begin =
                  [&](DeviceCall::Inputs inputs, DeviceCall::Outputs outputs,
                      const DeviceCall::Ended& end) {
                    given.assign(inputs.begin(), inputs.end());
                    given.insert(given.end(), outputs.begin(), outputs.end());
                    end(std::nullopt);
                  }})
        .synchronize();
    ASSERT_EQ(given.size(), 4u);
    for (std::size_t i = 0; i < given.size(); ++i) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(given[i]) % 256, 0u) << "stand-in " << i;
    }
  });
}

TEST(Lane, a_call_ends_when_it_says_so_and_notices_come_from_the_lane) {
  run_virtual_ranks(1, patient(), [](Communicator& world) {
    Bench bench(world);
    const DeviceBytes memory(*bench.device, bench.stream, values_of(DType::u8, 64, 0));
    const ConstDeviceBuffer in{memory.data(), 64};
    const DeviceBuffer out{memory.data(), 64};
    DeviceCall::Ended ended;
    std::atomic<bool> begun = false, noticed = false;
    DeviceWork work =
        bench.lane.run({.inputs = {&in, 1},
                        .outputs = {&out, 1},
                        .stream = bench.stream,
                        .name = "own",
                        .begin = [&](DeviceCall::Inputs inputs, DeviceCall::Outputs outputs,
                                     DeviceCall::Ended end) {
                          EXPECT_EQ(inputs[0], outputs[0]) << "in place";
                          ended = std::move(end);
                          begun = true;
                          begun.notify_one();
                        }});
    work.on_done([&] {
      noticed = true;
      noticed.notify_one();
    });
    begun.wait(false);
    EXPECT_FALSE(work.done());
    ended(Error(ErrorCode::internal, "the end"));
    noticed.wait(false);
    EXPECT_STREQ(work.failure()->what(), "the end");
  });
}

TEST(Lane, handles_and_waiting_streams_outlive_their_lane) {
  run_virtual_ranks(1, patient(), [](Communicator& world) {
    const auto device = fake_device();
    TestStream late(*device);
    Gate gate(*device);
    DeviceWork work;
    for (int round = 0; round < 3; ++round) {
      Bench bench(world);
      const Sum sum(bench, 10);
      work = bench.lane.all_reduce(sum.elements, sum.elements, ReduceOp::sum, bench.stream);
      if (round == 0) {
        gate.hold(late);  // comes to the wait when the lane is gone, and another one is there
      }
      work.wait(late);
      bench.lane.settle();  // the memory is freed here; the stream is not there yet
    }
    EXPECT_TRUE(work.done());
    gate.open();
    late.synchronize();
    DeviceWork copy = work;
    copy.synchronize();
  });
}

}  // namespace
}  // namespace sprat::device
