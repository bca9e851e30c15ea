// NCCL's interface of networks that reduce, as NCCL plays it, of every version that is exported.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "plugins/nccl_net/abi/coll_net_v10.hpp"
#include "plugins/nccl_net/abi/coll_net_v11.hpp"
#include "plugins/nccl_net/abi/coll_net_v12.hpp"
#include "plugins/nccl_net/abi/coll_net_v6.hpp"
#include "plugins/nccl_net/abi/coll_net_v7.hpp"
#include "plugins/nccl_net/abi/coll_net_v8.hpp"
#include "plugins/nccl_net/abi/coll_net_v9.hpp"
#include "tests/unit/plugins/nccl_net/played_net.hpp"

namespace sprat::nccl_net {
namespace {

constexpr int int64 = 4, float32 = 7, sum = 0, product = 1, maximum = 2, minimum = 3, average = 4;

template <class Table>
Table& coll_net(int version) {
  auto* table = static_cast<Table*>(plugin_symbol("ncclCollNetPlugin_v" + std::to_string(version)));
  if (table == nullptr) {
    throw std::runtime_error("no such network of version " + std::to_string(version));
  }
  return *table;
}

/// Runs `body` with each of `ranks` ranks, threads here, that NCCL has connected.
template <class Table>
void with_ranks(Table& table, int ranks, const std::function<void(int rank, void* comm)>& body) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<Handle> handles(count);
  std::vector<void*> listeners(count), contexts(count), places;
  for (std::size_t rank = 0; rank < count; ++rank) {
    if constexpr (requires { table.finalize; }) {
      check("init", table.init(&contexts[rank], 1, &keep_line));
      check("listen", table.listen(contexts[rank], 0, &handles[rank], &listeners[rank]));
    } else {
      check("init", table.init(&keep_line));
      check("listen", table.listen(0, &handles[rank], &listeners[rank]));
    }
    places.push_back(&handles[rank]);
  }
  std::vector<std::thread> threads;
  std::vector<std::string> failures(count);
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      try {
        void* comm = nullptr;
        check("connect", table.connect(places.data(), ranks, rank, listeners[at], &comm));
        body(rank, comm);
        check("closeColl", table.close_coll(comm));
      } catch (const std::exception& error) {
        failures[at] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t rank = 0; rank < count; ++rank) {
    EXPECT_EQ(failures[rank], "") << "rank " << rank;
    check("closeListen", table.close_listen(listeners[rank]));
    if constexpr (requires { table.finalize; }) {
      check("finalize", table.finalize(contexts[rank]));
    }
  }
}

template <class Table>
void* start(Table& table, void* comm, const void* source, void* target, std::size_t count, int type,
            int operation) {
  void* request = nullptr;
  poll_until([&] {
    // Counts of older versions are int.
    auto call = [&](auto number) {
      check("iallreduce", table.iallreduce(comm, const_cast<void*>(source), target,
                                           static_cast<decltype(number)>(count), type, operation,
                                           nullptr, nullptr, &request));
    };
    if constexpr (requires { table.make_v_device; }) {
      call(std::size_t{});
    } else {
      call(int{});
    }
    return request != nullptr;
  });
  return request;
}

template <class Table>
void end(Table& table, void* request, int bytes) {
  int size = 0;
  poll_until([&] {
    int done = 0;
    check("test", table.test(request, &done, &size));
    return done == 1;
  });
  EXPECT_EQ(size, bytes);
}

template <class Table>
void play(int version) {
  SCOPED_TRACE("version " + std::to_string(version));
  Table& table = coll_net<Table>(version);
  constexpr int ranks = 3;
  with_ranks(table, ranks, [&](int rank, void* comm) {
    constexpr std::size_t count = 1000;
    // Several under way, as of NCCL's channels; f32 out of place, i64 in place.
    std::array<std::vector<float>, 4> in, out;
    std::vector<void*> requests;
    for (const int operation : {sum, product, maximum, minimum}) {
      const auto at = static_cast<std::size_t>(operation);
      in[at].resize(count);
      out[at].assign(count, -1);
      for (std::size_t i = 0; i < count; ++i) {
        in[at][i] = static_cast<float>(1 + (i + static_cast<std::size_t>(rank)) % 3);
      }
      requests.push_back(
          start(table, comm, in[at].data(), out[at].data(), count, float32, operation));
    }
    std::vector<std::int64_t> whole(count, rank + 1);
    requests.push_back(start(table, comm, whole.data(), whole.data(), count, int64, sum));
    for (std::size_t at = 0; at < requests.size(); ++at) {
      end(table, requests[at], static_cast<int>(count * (at < 4 ? 4 : 8)));
    }
    // Each element meets 1, 2 and 3.
    EXPECT_EQ(out[sum], std::vector<float>(count, 6));
    EXPECT_EQ(out[product], std::vector<float>(count, 6));
    EXPECT_EQ(out[maximum], std::vector<float>(count, 3));
    EXPECT_EQ(out[minimum], std::vector<float>(count, 1));
    EXPECT_EQ(whole, std::vector<std::int64_t>(count, 6));
  });
}

TEST(NcclCollNet, every_version_reduces) {
  setenv("SPRAT_JOIN_TIMEOUT", "30", 1);
  play<CollNetV12>(12);
  play<CollNetV11>(11);
  play<CollNetV10>(10);
  play<CollNetV9>(9);
  play<CollNetV8>(8);
  play<CollNetV7>(7);
  play<CollNetV6>(6);
}

TEST(NcclCollNet, says_what_it_reduces_and_refuses_the_rest) {
  auto& table = coll_net<CollNetV11>(11);
  for (int type = 0; type < 12; ++type) {
    for (const int operation : {sum, product, maximum, minimum}) {
      int supported = -1;
      check("reduceSupport", table.reduce_support(type, operation, &supported));
      EXPECT_EQ(supported, 1) << "type " << type << ", operation " << operation;
    }
  }
  for (const auto& [type, operation] : {std::pair{float32, average}, {12, sum}, {-1, sum}}) {
    int supported = -1;
    check("reduceSupport", table.reduce_support(type, operation, &supported));
    EXPECT_EQ(supported, 0) << "type " << type << ", operation " << operation;
  }
  EXPECT_EQ(table.iallgather, nullptr);
  EXPECT_EQ(table.ireducescatter, nullptr);
}

TEST(NcclCollNet, closes_with_calls_under_way) {
  auto& table = coll_net<CollNetV11>(11);
  std::atomic<int> ended = 0;
  with_ranks(table, 2, [&](int rank, void* comm) {
    std::vector<float> data(1000, 1);
    const auto call = [&] {
      return start(table, comm, data.data(), data.data(), data.size(), float32, sum);
    };
    end(table, call(), 4000);
    // A close with calls under way ends the job, so the other one shall have what it waits for.
    ++ended;
    poll_until([&] { return ended == 2; });
    if (rank == 0) {  // and the other one never calls again
      call();
    }
  });
}

TEST(NcclCollNet, a_rank_that_does_not_come_is_an_error_within_the_time) {
  setenv("SPRAT_JOIN_TIMEOUT", "0.3", 1);
  auto& table = coll_net<CollNetV11>(11);
  void *context = nullptr, *listener = nullptr, *comm = nullptr;
  Handle handle;
  check("init", table.init(&context, 1, &keep_line));
  check("listen", table.listen(context, 0, &handle, &listener));
  std::array<void*, 2> handles = {&handle, &handle};
  last_line().clear();
  EXPECT_EQ(table.connect(handles.data(), 2, 0, listener, &comm), Result::system_error);
  EXPECT_NE(last_line().find("only 0 of 1 ranks have connected"), std::string::npos) << last_line();
  check("closeListen", table.close_listen(listener));
  check("finalize", table.finalize(context));
}

}  // namespace
}  // namespace sprat::nccl_net
