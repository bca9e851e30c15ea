// One rank, as a process, for the tests that kill: worker MODE.
//   endless COUNT   all_reduce of COUNT floats for ever; prints "ready" after the first
//   differ WHAT     ranks disagree about WHAT: count, dtype, op, collective
//   absent SECONDS  rank 1 never calls; the others' deadline is SECONDS
// Ends with 1 and the error on standard error, as the sprat command does.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"

namespace {

using namespace std::chrono_literals;

void run_endless(sprat::Communicator& world, std::size_t count) {
  std::vector<float> data(count, 1.0f);
  for (long round = 0;; ++round) {
    world.all_reduce(sprat::elements(data), sprat::ReduceOp::max, {.blocking = true}).wait();
    if (round == 10) {
      std::puts("ready");
      std::fflush(stdout);
    }
  }
}

void run_differ(sprat::Communicator& world, const std::string& what) {
  const bool odd = world.rank() == 1;
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

void run_absent(sprat::Communicator& world, int seconds) {
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
    if (mode == "endless") {
      run_endless(world, std::stoul(argument));
    } else if (mode == "differ") {
      run_differ(world, argument);
    } else if (mode == "absent") {
      run_absent(world, std::stoi(argument));
    }
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "worker: %s: %s\n", sprat::name(error.code()), error.what());
    return 1;
  }
  return 0;
}
