// One rank, as a process, for the tests that kill: worker MODE.
//   endless COUNT   all_reduce of COUNT floats for ever; prints "ready" after the first
//   until FILE      checked all_reduces until the file exists; prints "ready" after the first
//   differ WHAT     prints "joined"; ranks disagree about WHAT: count, dtype, op, collective
//   forked COUNT    endless, in ranks that have forked: a child that sleeps, and one that has ended
//                   as programs do, destructors and all
//   shrink COUNT    the same, but survivors of a failure shrink the job, do 100 right all_reduces
//                   and go on; prints "ready N" with the number of ranks each time
//   pipeline COUNT  steps of a pipeline for ever, a stage a rank, COUNT floats between stages;
//                   prints "ready" after the first
//   leave HOW       rank 1 ends without leaving the job: exit (in the middle of main), global
//                   (after it, with the communicator in static storage), throw (an exception that
//                   nobody catches)
//   stopped MEMORY  all_reduce of 64 MiB for ever, in shared or private memory, each within 2 s;
//                   who times out refills its buffer, says "refilled", and after a line on
//                   standard input "unchanged" if it is
//   wait SECONDS    rank 2 comes SECONDS late to an all_reduce, and again with a message to rank 0
//   slow MS         all_reduces for ever, before each of which rank 1 sleeps MS milliseconds;
//                   prints "ready" after the first
//   moves ROUNDS    reductions and gathers, each element checked, whose memory stays, moves within
//                   a segment, is made anew and is private, in turns that differ between ranks
//   absent SECONDS  prints "joined"; rank 1 never calls; the others' deadline is SECONDS
// Ends with 1 and the error on standard error, as the sprat command does.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/pipeline.hpp"

namespace {

using namespace std::chrono_literals;

void say(const char* word) {
  std::puts(word);
  std::fflush(stdout);
}

void run_endless(sprat::Communicator& world, std::size_t count) {
  std::vector<float> data(count, 1.0f);
  for (long round = 0;; ++round) {
    world.all_reduce(sprat::elements(data), sprat::ReduceOp::max, {.blocking = true}).wait();
    if (round == 10) {
      say("ready");
    }
  }
}

void run_slow(sprat::Communicator& world, std::chrono::milliseconds pause) {
  std::vector<float> data(1024, 1.0f);
  for (long round = 0;; ++round) {
    if (world.rank() == 1) {
      std::this_thread::sleep_for(pause);  // as long as a slow rank would compute
    }
    world.all_reduce(sprat::elements(data), sprat::ReduceOp::max, {.blocking = true}).wait();
    if (round == 0) {
      say("ready");
    }
  }
}

class PassOn final : public sprat::PipelineStages {
 public:
  explicit PassOn(std::size_t count) : count_(count) {}
  std::size_t most_elements(int) const override { return count_; }
  std::size_t forward(int, int, std::span<const float>, std::span<float> output) override {
    std::fill(output.begin(), output.end(), 1.0f);
    return output.size();
  }
  void backward(int, int, std::span<const float>, std::span<float> gradient) override {
    std::fill(gradient.begin(), gradient.end(), 1.0f);
  }
  void backward_input(int, int, std::span<const float>, std::span<float>) override {}
  void backward_weight(int, int) override {}

 private:
  std::size_t count_;
};

void run_pipeline(sprat::Communicator& world, std::size_t count) {
  PassOn stages(count);
  sprat::Pipeline pipeline(
      world,
      sprat::mp::make_schedule(
          {.kind = "1f1b", .shape = {.ranks = world.size(), .microbatches = 8}}),
      stages);
  pipeline.run();
  say("ready");
  for (;;) {
    pipeline.run();
  }
}

void run_until(sprat::Communicator& world, const std::string& file) {
  std::vector<float> data(1000);
  for (long round = 0; data[0] == 0; ++round) {
    std::fill(data.begin(), data.end(), 1.0f);
    data[0] = access(file.c_str(), F_OK) == 0 ? 1.0f : 0.0f;
    world.all_reduce(sprat::elements(data)).wait();
    for (std::size_t at = 1; at < data.size(); ++at) {
      if (data[at] != static_cast<float>(world.size())) {
        throw sprat::Error(sprat::ErrorCode::internal, "a sum is wrong");
      }
    }
    if (round == 0) {
      say("ready");
    }
  }
}

/// Destroyed after main(), if at all.
std::optional<sprat::Communicator> global_world;

int run_leave(sprat::Communicator world, const std::string& how) {
  std::vector<float> data(4);
  world.all_reduce(sprat::elements(data)).wait();
  if (world.rank() == 1) {
    if (how == "exit") {
      std::exit(0);
    }
    if (how == "throw") {
      std::thread([] { throw std::runtime_error("nobody catches this"); }).join();
    }
    global_world = std::move(world);
    return 0;
  }
  world.all_reduce(sprat::elements(data)).wait();
  return 0;
}

/// Rank 1 needs nobody for its broadcast and is gone when the others call it.
int run_last_words(sprat::Communicator world) {
  std::vector<float> data(4);
  world.all_reduce(sprat::elements(data)).wait();
  if (world.rank() != 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  std::vector<float> words(2, world.rank() == 1 ? 6.0f : 0.0f);
  world.broadcast(sprat::elements(words), 1).wait();
  return words == std::vector<float>(2, 6.0f) ? 0 : 1;
}

int run_stopped(sprat::Communicator& world, const std::string& memory) {
  constexpr std::size_t count = std::size_t{16} << 20;
  sprat::Memory shared(memory == "shared" ? count * sizeof(float) : 0);
  std::vector<float> own(memory == "shared" ? 0 : count);
  const std::span<float> data(memory == "shared" ? static_cast<float*>(shared.data()) : own.data(),
                              count);
  const auto is_all = [&](float value) {
    return std::all_of(data.begin(), data.end(), [value](float one) { return one == value; });
  };
  std::optional<sprat::Error> failure;
  for (int round = 0; !failure; ++round) {
    std::fill(data.begin(), data.end(), static_cast<float>(round % 5));
    try {
      world.all_reduce(sprat::elements(data), sprat::ReduceOp::sum, {.timeout = 2s}).wait();
      if (!is_all(static_cast<float>(round % 5 * world.size()))) {
        std::puts("wrong");
        return 1;
      }
    } catch (const sprat::Error& error) {
      failure = error;
    }
    if (round == 2) {
      say("ready");
    }
  }
  std::fill(data.begin(), data.end(), 12345.0f);
  std::puts("refilled");
  std::fflush(stdout);
  std::getchar();
  std::puts(is_all(12345.0f) ? "unchanged" : "CHANGED");
  std::fflush(stdout);
  throw *failure;
}

/// Leaves a child that sleeps for a minute; true in a second child, which is to return from main().
bool fork_children(sprat::Communicator& world) {
  if (fork() == 0) {
    std::fclose(stdout);
    std::fclose(stderr);
    sleep(60);
    _exit(0);
  }
  const pid_t child = fork();
  if (child == 0) {
    try {
      world.barrier();
    } catch (const sprat::Error& error) {
      return error.code() == sprat::ErrorCode::unavailable;
    }
    _exit(7);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) {
    throw std::runtime_error("the child of fork() ended with " + std::to_string(status));
  }
  return false;
}

/// Sum over ranks of (rank + 1), a hundred times and more.
void run_checked(sprat::Communicator& world, std::size_t count) {
  const auto ranks = static_cast<float>(world.size());
  const float sum = ranks * (ranks + 1) / 2;
  for (long round = 0;; ++round) {
    std::vector<float> data(count, static_cast<float>(world.rank() + 1));
    world.all_reduce(sprat::elements(data), sprat::ReduceOp::sum, {.blocking = true}).wait();
    for (const float value : data) {
      if (value != sum) {
        std::printf("wrong: %g instead of %g\n", static_cast<double>(value),
                    static_cast<double>(sum));
        std::fflush(stdout);
        std::abort();
      }
    }
    if (round == 100) {
      std::printf("ready %d\n", world.size());
      std::fflush(stdout);
    }
  }
}

void run_shrink(sprat::Communicator world, std::size_t count) {
  for (;;) {
    try {
      run_checked(world, count);
    } catch (const sprat::Error& error) {
      std::fprintf(stderr, "worker: %s: %s\n", sprat::name(error.code()), error.what());
      world = world.shrink();
    }
  }
}

void run_differ(sprat::Communicator& world, const std::string& what) {
  const bool odd = world.rank() == 1;
  say("joined");
  std::vector<float> data(what == "count" && odd ? 8 : 4);
  std::vector<std::int32_t> integers(4);
  if (what == "collective" && odd) {
    world.barrier();
  } else if (what == "dtype" && odd) {
    world.all_reduce(sprat::elements(integers)).wait();
  } else {
    world
        .all_reduce(sprat::elements(data),
                    what == "op" && odd ? sprat::ReduceOp::max : sprat::ReduceOp::sum)
        .wait();
  }
  world.barrier();
}

void run_wait(sprat::Communicator& world, int seconds) {
  std::vector<float> data(4);
  world.barrier();
  if (world.rank() == 2) {
    sleep(seconds);  // that a rank is late is what is tested
  }
  world.all_reduce(sprat::elements(data)).wait();
  if (world.rank() == 2) {
    sleep(seconds);
    world.send(sprat::elements(data), 0).wait();
  } else if (world.rank() == 0) {
    world.recv(sprat::elements(data), 2).wait();
  }
  world.barrier();
}

/// Both are as long on all ranks, a multiple of their number.
void reduce_and_gather(sprat::Communicator& world, std::span<float> in, std::span<float> out,
                       int round) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto value = [&](int rank, std::size_t i) {
    return static_cast<float>(static_cast<int>(i % 7) + rank + round % 1000);
  };
  const auto expect = [&](const char* what, std::size_t i, float wanted) {
    if (out[i] != wanted) {
      throw std::runtime_error("round " + std::to_string(round) + ": element " + std::to_string(i) +
                               " of " + what + " is " + std::to_string(out[i]) + " instead of " +
                               std::to_string(wanted));
    }
  };
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = value(world.rank(), i);
  }
  world.all_reduce(sprat::elements(std::span<const float>(in)), sprat::elements(out)).wait();
  for (std::size_t i = 0; i < out.size(); ++i) {
    float sum = 0;
    for (int rank = 0; rank < world.size(); ++rank) {
      sum += value(rank, i);
    }
    expect("a sum", i, sum);
  }
  const std::size_t part = in.size() / ranks;
  world.all_gather(sprat::elements(std::span<const float>(in).first(part)), sprat::elements(out))
      .wait();
  for (std::size_t i = 0; i < out.size(); ++i) {
    expect("what was gathered", i, value(static_cast<int>(i / part), i % part));
  }
}

void run_moves(sprat::Communicator& world, int rounds) {
  const std::size_t count = std::size_t{16} << 10;
  std::vector<float> in(count), out(count);  // private
  std::optional<sprat::Memory> shared;
  for (int round = 0; round < rounds; ++round) {
    const int turn = (round + round / 5 * world.rank()) % 5;
    if (turn == 0 || !shared) {
      shared.reset();
      shared.emplace(4 * count * sizeof(float));
    }
    const std::span<float> all(static_cast<float*>(shared->data()), 4 * count);
    switch (turn) {
      case 0:  // made anew
      case 1:  // and stays
        reduce_and_gather(world, all.first(count), all.subspan(count, count), round);
        break;
      case 2:  // both lie elsewhere
        reduce_and_gather(world, all.subspan(count, count), all.subspan(3 * count, count), round);
        break;
      case 3:
        reduce_and_gather(world, in, out, round);
        break;
      default:
        reduce_and_gather(world, all.last(count), out, round);
    }
  }
}

void run_absent(sprat::Communicator& world, int seconds) {
  say("joined");
  if (world.rank() == 1) {
    pause();  // until the test ends this process
  }
  std::vector<float> data(4);
  world
      .all_reduce(sprat::elements(data), sprat::ReduceOp::sum,
                  {.timeout = std::chrono::seconds(seconds)})
      .wait();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::string argument = argc > 2 ? argv[2] : "";
  try {
    auto world = sprat::Communicator::join();
    if (mode == "forked") {
      if (fork_children(world)) {
        return 0;
      }
      run_endless(world, std::stoul(argument));
    } else if (mode == "endless") {
      run_endless(world, std::stoul(argument));
    } else if (mode == "leave") {
      return run_leave(std::move(world), argument);
    } else if (mode == "last_words") {
      return run_last_words(std::move(world));
    } else if (mode == "stopped") {
      return run_stopped(world, argument);
    } else if (mode == "shrink") {
      run_shrink(std::move(world), std::stoul(argument));
    } else if (mode == "pipeline") {
      run_pipeline(world, std::stoul(argument));
    } else if (mode == "until") {
      run_until(world, argument);
    } else if (mode == "differ") {
      run_differ(world, argument);
    } else if (mode == "wait") {
      run_wait(world, std::stoi(argument));
    } else if (mode == "slow") {
      run_slow(world, std::chrono::milliseconds(std::stoi(argument)));
    } else if (mode == "moves") {
      run_moves(world, std::stoi(argument));
    } else if (mode == "absent") {
      run_absent(world, std::stoi(argument));
    }
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "worker: %s: %s\n", sprat::name(error.code()), error.what());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "worker: %s\n", error.what());
    return 1;
  }
  return 0;
}
