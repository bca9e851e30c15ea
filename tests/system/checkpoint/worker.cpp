// Saves and checks checkpoints of a model made by hand, for the scripts of this folder: ranks are
// threads. worker COMMAND ..., see usage below.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/loader.hpp"
#include "checkpoint/saver.hpp"
#include "sprat/communicator.hpp"
#include "tests/unit/checkpoint/model.hpp"

namespace {

using namespace sprat;
using fsdp::Arrangement;
using fsdp::HandMade;

constexpr const char* usage = R"(worker save FOLDER RANKS SHARDS STAGES FIRST LAST [KILL]
    saves these steps; SIGKILL before change KILL of the disk (from 1 on)
worker load PATH RANKS SHARDS STAGES
    prints the step after a look at every value
STAGES may be followed by xN: tensors are cut by columns among N ranks each; by tN: by rows of thirds
)";

/// Ends this process before its `last` change of the disk.
io::StepHook killing(int last) {
  return [last, count = std::make_shared<std::atomic<int>>(0)](std::string_view step,
                                                               const std::string& path) {
    if (++*count == last) {
      fmt::print("killed before {} {}\n", step, path);
      std::fflush(stdout);
      kill(getpid(), SIGKILL);
      pause();  // until the signal is there
    }
  };
}

int save(const Arrangement& arrangement, const std::string& folder, int first, int last,
         int death) {
  const io::StepHook hook = death > 0 ? killing(death) : io::StepHook();
  fsdp::on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
    fsdp::Saver saver(world, model.whole(), {.folder = folder, .hook = hook});
    for (int step = first; step <= last; ++step) {
      model.fill(static_cast<float>(step));
      saver.save({.step = step,
                  .samples = step,
                  .counters = {},
                  .notes = {},
                  .config = {},
                  .contents = {}});
    }
    saver.wait();
  });
  return 0;
}

int load(const Arrangement& arrangement, const std::string& path) {
  std::atomic<std::int64_t> step = -1;
  std::atomic<std::size_t> wrong = 0;
  fsdp::on_ranks(arrangement, [&](Communicator& world, HandMade& model) {
    model.spoil();
    step = fsdp::load(world, model.whole(), path, fsdp::LoadWhat::everything).step;
    wrong += model.wrong(static_cast<float>(step));
  });
  fmt::print("step {}, {} wrong values\n", step.load(), wrong.load());
  return wrong == 0 ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto number = [&](std::size_t at) { return at < words.size() ? std::stoi(words[at]) : 0; };
  try {
    const std::size_t cut = words.size() > 4 ? words[4].find_first_of("xt") : std::string::npos;
    const bool is_cut = cut != std::string::npos;
    const Arrangement arrangement{
        .ranks = number(2),
        .shards = number(3),
        .stages = number(4),
        .tensor_ranks = is_cut ? std::stoi(words[4].substr(cut + 1)) : 1,
        .cut = is_cut && words[4][cut] == 't' ? fsdp::Cut::thirds : fsdp::Cut::columns};
    if (words.size() >= 7 && words[0] == "save") {
      return save(arrangement, words[1], number(5), number(6), number(7));
    }
    if (words.size() == 5 && words[0] == "load") {
      return load(arrangement, words[1]);
    }
  } catch (const Error& error) {
    fmt::print(stderr, "worker: {}\n", error.what());
    return 1;
  }
  std::fputs(usage, stderr);
  return 2;
}
