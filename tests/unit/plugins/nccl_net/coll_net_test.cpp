// NCCL's interface of networks that reduce, as NCCL plays it, of every version that is exported.
#include <gtest/gtest.h>

#include <algorithm>
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
void play_coll_net(int version) {
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

/// A window of blocks that follow each other, in elements, as NCCL goes through long ones.
struct ElementWindow {
  std::size_t begin, end;
  /// Where the block of `rank` begins in it; its end if it does not.
  std::size_t own(std::size_t rank, std::size_t block) const {
    return std::clamp(rank * block, begin, end);
  }
  std::size_t own_count(std::size_t rank, std::size_t block) const {
    return std::clamp((rank + 1) * block, begin, end) - own(rank, block);
  }
};

/// The pieces of a version's table, by the one call that has a pointer to them.
template <class Comm, class Source, class Piece, class... Rest>
Piece piece_of(Result (*)(Comm, Source, int, Piece*, Rest...));

// Windows begin and end within blocks, hold one whole, and hold none of some ranks'. Memory of a
// rank's own block is in place, as NCCL has it with registered buffers.
template <class Table>
void play_windows(int version, bool in_place) {
  SCOPED_TRACE("version " + std::to_string(version) + (in_place ? " in place" : ""));
  Table& table = coll_net<Table>(version);
  using Piece = decltype(piece_of(table.iallgather));
  constexpr std::size_t ranks = 3, block = 1000, size = sizeof(float);
  constexpr std::array windows = {ElementWindow{0, 700}, ElementWindow{700, 2100},
                                  ElementWindow{2100, 3000}};
  with_ranks(table, ranks, [&](int number, void* comm) {
    const auto rank = static_cast<std::size_t>(number);
    std::vector<float> gathered(ranks * block, -1), given(ranks * block), mine(block),
        sum_of(block);
    for (std::size_t at = 0; at < block; ++at) {
      mine[at] = static_cast<float>(rank * block + at);
    }
    for (std::size_t at = 0; at < given.size(); ++at) {
      given[at] = static_cast<float>(at % 100 + rank);
    }
    if (in_place) {
      std::ranges::copy(mine, gathered.begin() + static_cast<std::ptrdiff_t>(rank * block));
    }
    float* const own_in = in_place ? gathered.data() + rank * block : mine.data();
    float* const own_out = in_place ? given.data() + rank * block : sum_of.data();
    std::vector<void*> requests;
    for (const ElementWindow& window : windows) {
      const std::size_t count = window.end - window.begin;
      const std::size_t before =
          window.own_count(rank, block) > 0 ? window.own(rank, block) - rank * block : 0;
      const auto piece = [&](float* memory) {
        return Piece{nullptr, memory + window.begin,
                     static_cast<decltype(Piece::bytes)>(count * size)};
      };
      Piece to = piece(gathered.data()), from = piece(given.data());
      void *gather = nullptr, *scatter = nullptr;
      check("iallgather", table.iallgather(comm, own_in + before, 1, &to, block * size,
                                           window.begin * size, count * size, nullptr, &gather));
      check("ireducescatter", table.ireducescatter(comm, 1, &from, own_out + before, block * size,
                                                   window.begin * size, count * size, float32, sum,
                                                   nullptr, &scatter));
      end(table, gather, static_cast<int>(count * size));
      end(table, scatter, static_cast<int>(count * size));
    }
    for (std::size_t at = 0; at < gathered.size(); ++at) {
      ASSERT_EQ(gathered[at], static_cast<float>(at)) << "element " << at << " on rank " << rank;
    }
    for (std::size_t at = 0; at < block; ++at) {
      ASSERT_EQ(own_out[at], static_cast<float>(3 * ((rank * block + at) % 100) + 3))
          << "sum " << at << " on rank " << rank;
    }
  });
}

TEST(NcclCollNet, every_version_since_8_gathers_and_scatters_windows) {
  setenv("SPRAT_JOIN_TIMEOUT", "30", 1);
  play_windows<CollNetV12>(12, false);
  play_windows<CollNetV12>(12, true);
  play_windows<CollNetV11>(11, false);
  play_windows<CollNetV10>(10, false);
  play_windows<CollNetV9>(9, false);
  play_windows<CollNetV8>(8, true);
}

TEST(NcclCollNet, refuses_windows_that_are_none) {
  auto& table = coll_net<CollNetV12>(12);
  with_ranks(table, 1, [&](int, void* comm) {
    std::array<float, 10> memory{};
    CollNetPieceV12 piece{nullptr, memory.data(), 40};
    void* request = nullptr;
    const auto gather = [&](int parts, std::size_t offset, std::size_t bytes) {
      last_line().clear();
      return table.iallgather(comm, memory.data(), parts, &piece, 40, offset, bytes, nullptr,
                              &request);
    };
    EXPECT_EQ(gather(2, 0, 40), Result::internal_error);
    EXPECT_NE(last_line().find("2 pieces of memory"), std::string::npos) << last_line();
    EXPECT_EQ(gather(1, 0, 36), Result::internal_error);
    EXPECT_EQ(gather(1, 4, 40), Result::internal_error);
    EXPECT_NE(last_line().find("is not within 1 blocks of 40"), std::string::npos) << last_line();
    piece.bytes = 38;
    EXPECT_EQ(table.ireducescatter(comm, 1, &piece, memory.data(), 40, 0, 38, float32, sum, nullptr,
                                   &request),
              Result::internal_error);
    EXPECT_NE(last_line().find("elements of 4"), std::string::npos) << last_line();
    piece.bytes = 40;
    EXPECT_EQ(table.ireducescatter(comm, 1, &piece, memory.data(), 40, 0, 40, float32, average,
                                   nullptr, &request),
              Result::internal_error);
  });
}

TEST(NcclCollNet, every_version_reduces) {
  setenv("SPRAT_JOIN_TIMEOUT", "30", 1);
  play_coll_net<CollNetV12>(12);
  play_coll_net<CollNetV11>(11);
  play_coll_net<CollNetV10>(10);
  play_coll_net<CollNetV9>(9);
  play_coll_net<CollNetV8>(8);
  play_coll_net<CollNetV7>(7);
  play_coll_net<CollNetV6>(6);
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
