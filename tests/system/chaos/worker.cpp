// One rank, as a process, of jobs that are killed, stopped, cut and misled: chaos_worker MODE.
//   soak SEED [fork] [shrink]    random collectives for ever, each checked exactly; "ready" when
//                                under way. fork: a child that sleeps keeps what it inherits.
//                                shrink: survivors go on, "shrunk N" after 100 right collectives.
//   differ CASE BYTES            rank 1 disagrees with the others; CASE A/B: it calls B, they call
//   A
//   domains WAY SEED N           one communicator fails, by timeout, mismatch, abort, revoke or
//   loss (of
//                                a rank of it); three others of the same ranks, but the lost one,
//                                do N right collectives each, then the first is shrunk; "well"
//   elastic SEED PLACE N           a rank after the other is killed: the others shrink, and grow by
//                                a newcomer to as many as they were, whom they meet at PLACE;
//                                "whole SIZE G" for each generation, "shrunk SIZE G"; generation N
//                                ends well
//   newcomer SEED PLACE N          the same, of one that comes later
// Ends with 1 and "worker: CODE: rank R: TEXT" on standard error; with 3 on a wrong byte.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/base/hash.hpp"
#include "sprat/communicator.hpp"

namespace {

using sprat::elements;
using sprat::ReduceOp;

constexpr int rounds_after_shrinking = 100;

/// SplitMix64: all ranks draw the same.
struct Random {
  std::uint64_t state;
  std::uint64_t next() { return sprat::mix_bits(state += sprat::golden_step); }
  std::size_t below(std::size_t bound) { return next() % bound; }
};

std::uint32_t value(std::uint64_t round, int rank, std::size_t index) {
  return static_cast<std::uint32_t>(
      (round * 131 + static_cast<std::uint64_t>(rank) * 31 + index * 7) % 1'009);
}

void expect(bool right, const char* what, std::uint64_t round, std::size_t index) {
  if (!right) {
    std::fprintf(stderr, "worker: WRONG %s in round %llu at %zu\n", what,
                 static_cast<unsigned long long>(round), index);
    std::_Exit(3);
  }
}

std::vector<std::uint32_t> inputs(std::uint64_t round, int rank, std::size_t count) {
  std::vector<std::uint32_t> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = value(round, rank, i);
  }
  return data;
}

enum class Lengths { any, mostly_short };

/// How many elements a rank has. Where thousands of collectives are wanted, to make and check long
/// ones would be all that takes time.
std::size_t draw_count(Random& random, Lengths lengths) {
  constexpr std::size_t scales[] = {1, 16, 600, 20'000, 400'000};
  std::size_t scale = random.below(std::size(scales));
  if (lengths == Lengths::mostly_short && scale >= 3 && random.below(32) != 0) {
    scale = random.below(3);
  }
  return 1 + random.below(scales[scale]);
}

/// One collective that all ranks draw alike, checked element by element.
void run_round(sprat::Communicator& world, Random& random, std::uint64_t round,
               Lengths lengths = Lengths::any) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const int me = world.rank();
  const std::size_t count = draw_count(random, lengths);
  const std::size_t what = random.below(6);
  const int root = static_cast<int>(random.below(ranks));
  const auto in = inputs(round, me, count);
  std::vector<std::uint32_t> out(what == 1 || what == 4 ? count * ranks : count);
  const auto sum = [&](std::size_t index) {
    std::uint32_t total = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      total += value(round, static_cast<int>(rank), index);
    }
    return total;
  };
  switch (what) {
    case 0:
      world.all_reduce(elements(in), elements(out), ReduceOp::sum).wait();
      for (std::size_t i = 0; i < count; ++i) {
        expect(out[i] == sum(i), "all_reduce", round, i);
      }
      return;
    case 1:
      world.all_gather(elements(in), elements(out)).wait();
      for (std::size_t i = 0; i < out.size(); ++i) {
        expect(out[i] == value(round, static_cast<int>(i / count), i % count), "all_gather", round,
               i);
      }
      return;
    case 2: {
      const auto whole = inputs(round, me, count * ranks);
      world.reduce_scatter(elements(whole), elements(out), ReduceOp::sum).wait();
      for (std::size_t i = 0; i < count; ++i) {
        expect(out[i] == sum(static_cast<std::size_t>(me) * count + i), "reduce_scatter", round, i);
      }
      return;
    }
    case 3:
      if (me == root) {
        out = in;
      }
      world.broadcast(elements(out), root).wait();
      for (std::size_t i = 0; i < count; ++i) {
        expect(out[i] == value(round, root, i), "broadcast", round, i);
      }
      return;
    case 4: {
      const auto whole = inputs(round, me, count * ranks);
      world.all_to_all(elements(whole), elements(out)).wait();
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t from = i / count;
        expect(out[i] == value(round, static_cast<int>(from),
                               static_cast<std::size_t>(me) * count + i % count),
               "all_to_all", round, i);
      }
      return;
    }
    default: {
      const auto next = static_cast<int>((static_cast<std::size_t>(me) + 1) % ranks);
      const auto before = static_cast<int>((static_cast<std::size_t>(me) + ranks - 1) % ranks);
      auto sent = world.send(elements(in), next, 3);
      world.recv(elements(out), before, 3).wait();
      sent.wait();
      for (std::size_t i = 0; i < count; ++i) {
        expect(out[i] == value(round, before, i), "send", round, i);
      }
      return;
    }
  }
}

void say(const std::string& words) {
  std::puts(words.c_str());
  std::fflush(stdout);
}

void soak(sprat::Communicator world, std::uint64_t seed, bool shrinks) {
  for (std::uint64_t generation = 0;; ++generation) {
    Random random{seed * 1'000 + generation};
    try {
      for (std::uint64_t round = 0;; ++round) {
        run_round(world, random, round);
        if (generation == 0 && round == 3) {
          say("ready");
        } else if (generation > 0 && round == rounds_after_shrinking) {
          say("shrunk " + std::to_string(world.size()));
        }
      }
    } catch (const sprat::Error& error) {
      if (!shrinks) {
        throw;
      }
      std::fprintf(stderr, "worker: %s: rank %d: %s\n", sprat::name(error.code()), error.rank(),
                   error.what());
      world = world.shrink();
    }
  }
}

/// Calls a collective by its name, with `count` elements for each rank; a v-form with one more for
/// rank 0, or for the last rank if `tilted`.
void call(sprat::Communicator& world, const std::string& name, std::size_t count, bool tilted) {
  const auto ranks = static_cast<std::size_t>(world.size()),
             me = static_cast<std::size_t>(world.rank());
  std::vector<std::size_t> counts(ranks, count);
  ++counts[tilted ? ranks - 1 : 0];
  std::vector<float> whole(count * ranks + 1), result(count * ranks + 1);
  const auto some = [](std::vector<float>& data, std::size_t size) {
    return sprat::Elements{data.data(), size, sprat::DType::f32};
  };
  const auto part = some(whole, count), parts = some(whole, count * ranks);
  const auto out = some(result, count), outs = some(result, count * ranks);
  const auto mine = some(result, counts[me]);
  const auto none = some(result, 0);
  if (name == "all_reduce") {
    world.all_reduce(part, out).wait();
  }
  if (name == "all_gather") {
    world.all_gather(part, outs).wait();
  }
  if (name == "reduce_scatter") {
    world.reduce_scatter(parts, out).wait();
  }
  if (name == "broadcast") {
    world.broadcast(part, 0).wait();
  }
  if (name == "all_to_all") {
    world.all_to_all(parts, outs).wait();
  }
  if (name == "reduce") {
    world.reduce(part, me == 0 ? out : none, 0).wait();
  }
  if (name == "gather") {
    world.gather(part, me == 0 ? outs : none, 0).wait();
  }
  if (name == "scatter") {
    world.scatter(me == 0 ? parts : none, out, 0).wait();
  }
  if (name == "all_gatherv") {
    world.all_gatherv(some(whole, counts[me]), some(result, count * ranks + 1), counts).wait();
  }
  if (name == "reduce_scatterv") {
    world.reduce_scatterv(some(whole, count * ranks + 1), mine, counts).wait();
  }
  if (name == "gatherv") {
    world
        .gatherv(some(whole, counts[me]), me == 0 ? some(result, count * ranks + 1) : none,
                 me == 0 ? counts : std::vector<std::size_t>(), 0)
        .wait();
  }
  if (name == "scatterv") {
    world
        .scatterv(me == 0 ? some(whole, count * ranks + 1) : none, mine,
                  me == 0 ? counts : std::vector<std::size_t>(), 0)
        .wait();
  }
  if (name == "all_to_allv") {
    const std::vector<std::size_t> equal(ranks, count);
    world.all_to_allv(parts, outs, equal, equal).wait();
  }
  if (name == "barrier") {
    world.barrier();
  }
}

/// Every rank calls all_reduce of `bytes` of f32, but rank 1.
void differ(sprat::Communicator& world, const std::string& how, std::size_t bytes) {
  const bool odd = world.rank() == 1;
  const std::size_t count = bytes / sizeof(float), ranks = static_cast<std::size_t>(world.size());
  std::vector<float> data(count + 1), whole((count + 1) * ranks);
  std::vector<std::int32_t> integers(count);
  const sprat::Elements all{data.data(), count, sprat::DType::f32};
  const sprat::Elements gathered{whole.data(), count * ranks, sprat::DType::f32};
  const auto common = [&] { world.all_reduce(all).wait(); };
  if (const std::size_t slash = how.find('/'); slash != std::string::npos) {
    call(world, odd ? how.substr(slash + 1) : how.substr(0, slash), count, odd);
  } else if (how == "missing") {
    if (!odd) {
      common();
    }
    world.all_gather(all, gathered).wait();
  } else if (how == "root") {
    world.broadcast(all, odd ? 1 : 0).wait();
  } else if (how == "order") {
    if (odd) {
      world.all_gather(all, gathered).wait();
      common();
    } else {
      common();
      world.all_gather(all, gathered).wait();
    }
  } else if (!odd) {
    common();
  } else if (how == "collective") {
    world.all_gather(all, gathered).wait();
  } else if (how == "barrier") {
    world.barrier();
  } else if (how == "dtype") {
    world.all_reduce(elements(integers)).wait();
  } else if (how == "op") {
    world.all_reduce(all, ReduceOp::max).wait();
  } else if (how == "count") {
    world.all_reduce(elements(data)).wait();
  }
  world.barrier();
}

constexpr int rounds_of_the_shrunk = 20;

/// Lets `group` fail. What is posted on it keeps its buffer to the end.
struct Doomed {
  sprat::Communicator& group;
  std::string way;
  int odd = 1;  ///< The rank that is to blame.
  std::vector<float> data = std::vector<float>(50'000, 1.0f), whole = {};

  sprat::Work post() {
    using namespace std::chrono_literals;
    const bool me = group.rank() == odd;
    if (way == "timeout") {
      return me ? sprat::Work()
                : group.all_reduce(elements(data), ReduceOp::sum, {.timeout = 500ms});
    }
    if (way == "mismatch" && me) {
      whole.resize(data.size() * static_cast<std::size_t>(group.size()));
      return group.all_gather(elements(data), elements(whole));
    }
    return me ? sprat::Work() : group.all_reduce(elements(data));
  }
  /// In the midst of the others' work.
  void strike() {
    if (group.rank() != odd) {
      return;
    }
    if (way == "abort") {
      group.abort("as it was told");
    } else if (way == "revoke") {
      group.revoke("as it was told");
    } else if (way == "loss") {
      raise(SIGKILL);
    }
  }
  const char* code() const {
    return way == "timeout"    ? "timeout"
           : way == "mismatch" ? "mismatch"
           : way == "loss"     ? "lost peer"
                               : "aborted";
  }
};

void expect_failure(Doomed& doomed, sprat::Work& work) {
  std::string code = "none", text;
  try {
    work.wait();
    // Of a rank that had nothing to wait for. A call of its own now would be one more disagreement.
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!doomed.group.failure() && std::chrono::steady_clock::now() < patience) {
      std::this_thread::yield();
    }
    doomed.group.barrier();
  } catch (const sprat::Error& error) {
    code = sprat::name(error.code());
    text = error.what();
  }
  if (code != doomed.code()) {
    throw sprat::Error(sprat::ErrorCode::internal,
                       "group failed by " + code + ", not by " + doomed.code() + ": " + text);
  }
  std::fill(doomed.data.begin(), doomed.data.end(), -1.0f);
}

void domains(sprat::Communicator world, const std::string& way, std::uint64_t seed,
             std::uint64_t operations) {
  Random random{seed};
  // The coordinator lives beside rank 0: without that rank the whole job ends.
  const int odd =
      way == "loss" ? 1 + static_cast<int>(random.below(static_cast<std::size_t>(world.size()) - 1))
                    : static_cast<int>(random.below(static_cast<std::size_t>(world.size())));
  const bool apart = way == "loss" && world.rank() == odd;
  sprat::Communicator group = world.duplicate("group");
  std::vector<sprat::Communicator> others;
  for (int number = 0; number < 3; ++number) {
    others.push_back(*world.split(apart ? 1 : 0));
  }
  Doomed doomed{group, way, odd};
  sprat::Work work = doomed.post();
  const std::uint64_t strike = random.below(operations);
  Random draws[3] = {{seed + 1}, {seed + 2}, {seed + 3}};
  const auto run = [&](std::uint64_t round) {
    for (std::size_t number = 0; number < others.size(); ++number) {
      run_round(others[number], draws[number], round, Lengths::mostly_short);
    }
  };
  for (std::uint64_t round = 0; round < operations; ++round) {
    if (round == strike) {
      doomed.strike();
    }
    run(round);
  }
  expect_failure(doomed, work);
  for (std::uint64_t round = 0; round < operations / 10 + 10; ++round) {
    run(round);
  }
  for (const float value : doomed.data) {
    expect(value == -1.0f, "late write", 0, 0);
  }
  group = group.shrink();
  expect(group.size() == world.size() - (way == "loss" ? 1 : 0), "size", 0, 0);
  Random last{seed + 4};
  for (std::uint64_t round = 0; round < rounds_of_the_shrunk; ++round) {
    run_round(group, last, round);
    run(round);
  }
  for (const sprat::Communicator& other : others) {
    expect(!other.failure(), "failure of another communicator", 0, 0);
  }
  say("well");
}

/// Right collectives until one fails, or the last generation has done enough of them.
bool run_generation(sprat::Communicator& world, std::uint64_t seed, std::uint64_t generation,
                    bool last) {
  constexpr std::uint64_t enough = 30;
  Random random{seed * 1'000 + generation};
  try {
    for (std::uint64_t round = 0; !last || round < enough; ++round) {
      run_round(world, random, round);
      if (round == 3) {
        say("whole " + std::to_string(world.size()) + " " + std::to_string(generation));
      }
    }
    return true;
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "worker: %s: rank %d: %s\n", sprat::name(error.code()), error.rank(),
                 error.what());
    return false;
  }
}

void elastic(sprat::Communicator world, std::uint64_t seed, const std::string& place,
             std::uint64_t generations) {
  using namespace std::chrono_literals;
  std::uint64_t generation = 0;
  for (;;) {
    // A newcomer does not know how often the others have grown.
    world.all_reduce(elements(std::span(&generation, 1)), ReduceOp::max).wait();
    if (run_generation(world, seed, generation, generation == generations)) {
      world.barrier();  // nobody leaves while others still need it
      return say("well");
    }
    const int size = world.size();
    world = world.shrink();
    Random random{seed * 1'000 + generation + 500};
    for (std::uint64_t round = 0; round < rounds_of_the_shrunk; ++round) {
      run_round(world, random, round);
    }
    say("shrunk " + std::to_string(world.size()) + " " + std::to_string(generation));
    ++generation;
    // The old one lives until it is replaced: nothing of it may reach the new one.
    world = world.grow(size - world.size(), place, 30s);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto has = [&](std::string_view option) {
    return std::find(arguments.begin(), arguments.end(), option) != arguments.end();
  };
  if (arguments.size() < 2) {
    return 2;
  }
  try {
    if (arguments[0] == "newcomer" && arguments.size() > 3) {
      sprat::Config config = sprat::Config::from_environment();
      config.rendezvous = arguments[2];
      elastic(sprat::Communicator::join_growing(config), std::stoull(arguments[1]), arguments[2],
              std::stoull(arguments[3]));
      return 0;
    }
    auto world = sprat::Communicator::join();
    if (has("fork") && fork() == 0) {
      std::fclose(stdout);
      std::fclose(stderr);
      sleep(60);
      _exit(0);
    }
    if (arguments[0] == "soak") {
      soak(std::move(world), std::stoull(arguments[1]), has("shrink"));
    } else if (arguments[0] == "differ" && arguments.size() > 2) {
      differ(world, arguments[1], std::stoull(arguments[2]));
    } else if (arguments[0] == "elastic" && arguments.size() > 3) {
      elastic(std::move(world), std::stoull(arguments[1]), arguments[2], std::stoull(arguments[3]));
    } else if (arguments[0] == "domains" && arguments.size() > 3) {
      domains(std::move(world), arguments[1], std::stoull(arguments[2]), std::stoull(arguments[3]));
    }
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "worker: %s: rank %d: %s\n", sprat::name(error.code()), error.rank(),
                 error.what());
    return 1;
  }
  return 0;
}
