// One of two ranks on two hosts, run by tests/system/hosts/run: libnccl-net-sprat.so between them,
// as NCCL would have it. A Sprat job of the same two ranks brings the handles over.
//   pair check            every version: messages of all lengths both ways at a time, held against
//                         what was sent
//   pair many MESSAGES    every version: so many messages each way, every byte held against what
//                         was sent
//   pair rate [SECONDS]   bytes a second through the plugin and through our own send() and recv()
//                         over the same wire, by turns
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "sprat/communicator.hpp"
#include "tests/unit/plugins/nccl_net/played_net.hpp"

namespace {

using namespace sprat::nccl_net;
using Clock = std::chrono::steady_clock;

/// As many as NCCL has under way on a channel: NCCL_STEPS.
constexpr std::size_t window = 8;

/// Both ends of this rank: to the other one, and from it.
Pair join_other(PlayedNet& net, sprat::Communicator& world) {
  std::vector<Handle> handles(2);
  Handle mine;
  void* listener = net.listen(mine);
  world
      .all_gather({mine.data(), mine.size(), sprat::DType::u8},
                  {handles.data(), 2 * mine.size(), sprat::DType::u8})
      .wait();
  Handle& theirs = handles[static_cast<std::size_t>(1 - world.rank())];
  Pair pair;
  poll_until([&] {
    pair.sender = pair.sender == nullptr ? net.connect(theirs) : pair.sender;
    pair.receiver = pair.receiver == nullptr ? net.accept(listener) : pair.receiver;
    return pair.sender != nullptr && pair.receiver != nullptr;
  });
  net.close_listen(listener);
  return pair;
}

/// Both ways at a time; how many messages came wrong.
int exchange(PlayedNet& net, Pair pair, int rank, std::size_t bytes) {
  const auto of = [bytes](int sender, std::size_t message) {
    return pattern(bytes, static_cast<unsigned>(sender) * 100 + static_cast<unsigned>(message));
  };
  std::vector<std::vector<std::byte>> out, in(window, std::vector<std::byte>(bytes + 64));
  std::vector<void*> requests;
  for (std::size_t at = 0; at < window; ++at) {
    out.push_back(of(rank, at));
    const PlayedReceive receive{in[at].data(), in[at].size(), 1};
    requests.push_back(receive_now(net, pair.receiver, {&receive, 1}));
    requests.push_back(send_now(net, pair.sender, out[at].data(), bytes, 1));
  }
  int wrong = 0;
  poll_until([&] {
    std::erase_if(requests, [&](void* request) {
      int done = 0, size = 0;
      check("test", net.test(request, &done, &size));
      wrong += done == 1 && size != static_cast<int>(bytes) ? 1 : 0;
      return done == 1;
    });
    return requests.empty();
  });
  for (std::size_t at = 0; at < window; ++at) {
    in[at].resize(bytes);
    wrong += in[at] == of(1 - rank, at) ? 0 : 1;
  }
  return wrong;
}

int check_all(sprat::Communicator& world) {
  int wrong = 0;
  for (const int version : net_versions()) {
    const auto net = play_net(version);
    const Pair pair = join_other(*net, world);
    for (const std::size_t bytes : {0u, 1u, 512u, 40'000u, 1u << 20, (2u << 20) + 3}) {
      const int here = exchange(*net, pair, world.rank(), bytes);
      if (here != 0) {
        fmt::print("v{}: {} of {} messages of {} bytes came wrong to rank {}\n", version, here,
                   window, bytes, world.rank());
      }
      wrong += here;
    }
    world.barrier();
    close(*net, pair);
  }
  if (wrong == 0 && world.rank() == 0) {
    fmt::print("all versions carry all lengths between two hosts\n");
  }
  return wrong == 0 ? 0 : 1;
}

int check_many(sprat::Communicator& world, std::size_t messages) {
  std::size_t wrong = 0;
  for (const int version : net_versions()) {
    const auto net = play_net(version);
    const Pair pair = join_other(*net, world);
    const auto seed_of = [version](int sender) {
      return static_cast<unsigned>(2 * version + sender);
    };
    std::thread sender([&] { send_many(*net, pair.sender, seed_of(world.rank()), messages); });
    const std::size_t here = receive_many(*net, pair.receiver, seed_of(1 - world.rank()), messages);
    sender.join();
    fmt::print("v{}: {} messages came to rank {}, {} of them wrong\n", version, messages,
               world.rank(), here);
    std::fflush(stdout);  // a million take minutes
    wrong += here;
    world.barrier();
    close(*net, pair);
  }
  return wrong == 0 ? 0 : 1;
}

/// Bytes a second of `messages` messages from rank 0 to rank 1; both ranks call, rank 1 knows.
template <class Start, class Finish>
double measure(sprat::Communicator& world, std::size_t bytes, std::size_t messages, Start start,
               Finish end) {
  world.barrier();
  const auto begun = Clock::now();
  for (std::size_t at = 0; at < messages; ++at) {
    if (at >= window) {
      end(at % window);
    }
    start(at % window);
  }
  for (std::size_t at = messages; at < messages + window; ++at) {
    end(at % window);
  }
  const std::chrono::duration<double> seconds = Clock::now() - begun;
  return static_cast<double>(bytes * messages) / seconds.count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure_all(sprat::Communicator& world, double seconds) {
  const auto net = play_net(11);
  const Pair pair = join_other(*net, world);
  std::vector<std::vector<std::byte>> rooms(window, std::vector<std::byte>(4 << 20));
  const bool sends = world.rank() == 0;
  for (std::size_t bytes = 16 << 10; bytes <= 4 << 20; bytes *= 4) {
    const std::size_t messages = std::max((std::size_t{64} << 20) / bytes, 4 * window);
    std::vector<void*> requests(window);
    std::vector<sprat::Work> works(window);
    const auto plugin = [&] {
      return measure(
          world, bytes, messages,
          [&](std::size_t slot) {
            const PlayedReceive receive{rooms[slot].data(), bytes, 1};
            requests[slot] = sends ? send_now(*net, pair.sender, rooms[slot].data(), bytes, 1)
                                   : receive_now(*net, pair.receiver, {&receive, 1});
          },
          [&](std::size_t slot) { finish(*net, requests[slot]); });
    };
    // Both kinds of waiting: NCCL asks again and again, and so may a program ask a Work, or sleep.
    const auto own = [&](const auto& end) {
      return measure(
          world, bytes, messages,
          [&](std::size_t slot) {
            works[slot] = sends ? world.send({rooms[slot].data(), bytes, sprat::DType::u8}, 1)
                                : world.recv({rooms[slot].data(), bytes, sprat::DType::u8}, 0);
          },
          [&](std::size_t slot) { end(works[slot]); });
    };
    std::vector<double> of_plugin, of_asked, of_slept, ratios, ratios_slept;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    for (int enough = 0; enough == 0;) {
      // Pairs by turns: whatever else the machine does meets both.
      of_plugin.push_back(plugin());
      of_asked.push_back(own([](sprat::Work& work) { poll_until([&] { return work.test(); }); }));
      of_slept.push_back(own([](sprat::Work& work) { work.wait(); }));
      ratios.push_back(of_plugin.back() / of_asked.back());
      ratios_slept.push_back(of_plugin.back() / of_slept.back());
      enough = !sends && Clock::now() > end && ratios.size() >= 5 ? 1 : 0;
      world.broadcast({&enough, 1, sprat::DType::i32}, 1).wait();
    }
    if (!sends) {
      fmt::print(
          "{:>8} bytes, GB/s: plugin {:.3f}, send and recv asked {:.3f}, slept {:.3f}; "
          "ratios {:.3f}, {:.3f} (medians of {})\n",
          bytes, median(of_plugin) / 1e9, median(of_asked) / 1e9, median(of_slept) / 1e9,
          median(ratios), median(ratios_slept), ratios.size());
    }
  }
  world.barrier();
  close(*net, pair);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  auto world = sprat::Communicator::join();
  if (world.size() != 2 || (what != "check" && what != "many" && what != "rate") ||
      (what == "many" && argc < 3)) {
    fmt::print(stderr,
               "nccl_net_pair check|many MESSAGES|rate [SECONDS], as two ranks on two hosts\n");
    return 2;
  }
  if (what == "check") {
    return check_all(world);
  }
  if (what == "many") {
    return check_many(world, std::strtoull(argv[2], nullptr, 10));
  }
  measure_all(world, argc > 2 ? std::atof(argv[2]) : 3);
  return 0;
}
