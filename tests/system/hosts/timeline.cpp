// One rank of a pipeline over hosts whose clocks differ: the timeline of what ran is in order.
// timeline_worker: a rank of a job that torchrun's variables describe. Each stage computes for some
// milliseconds. Ends with 1 if an action begins before what it needs, by more than clocks may be
// wrong, or if the whole lasts longer than it did.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/error.hpp"
#include "sprat/pipeline.hpp"

namespace {

using sprat::mp::Action;
using sprat::mp::Op;
using sprat::mp::TimeSpan;

constexpr int microbatches = 6;
constexpr std::size_t message_elements = 256;
constexpr std::chrono::milliseconds computation(4);

class SlowStages final : public sprat::PipelineStages {
 public:
  explicit SlowStages(int last_stage) : last_stage_(last_stage) {}

  std::size_t most_elements(int stage) const override {
    return stage == last_stage_ ? 0 : message_elements;
  }
  std::size_t forward(int stage, int, std::span<const float>, std::span<float>) override {
    std::this_thread::sleep_for(computation);
    return most_elements(stage);
  }
  void backward(int, int, std::span<const float>, std::span<float> result) override {
    std::this_thread::sleep_for(computation);
    std::fill(result.begin(), result.end(), 1.0f);
  }
  void backward_input(int stage, int j, std::span<const float> given,
                      std::span<float> result) override {
    backward(stage, j, given, result);
  }
  void backward_weight(int, int) override { std::this_thread::sleep_for(computation); }

 private:
  int last_stage_;
};

using Times = std::map<std::tuple<Op, int, int>, TimeSpan>;

Times times_of(const sprat::mp::Schedule& schedule, const sprat::mp::Timeline& timeline) {
  Times times;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const Action& action = schedule.actions[rank][i];
      times[{action.op, action.stage, action.microbatch}] = timeline.spans[rank][i];
    }
  }
  return times;
}

/// Lines on what is out of order. A rank has the stage of its number.
std::string disorder(const sprat::mp::Schedule& schedule, const sprat::mp::Timeline& timeline,
                     const std::vector<int>& hosts) {
  Times times = times_of(schedule, timeline);
  std::string wrong;
  for (int stage = 0; stage + 1 < schedule.stages(); ++stage) {
    const int host = hosts[std::size_t(stage)], next_host = hosts[std::size_t(stage) + 1];
    const double error = host == next_host ? 0 : (host == hosts[0] ? 1 : 2) * timeline.clock_error;
    const auto after = [&](const char* what, int of, int microbatch, double early, double late) {
      if (late < early - error) {
        wrong += fmt::format("{} of stage {}, micro-batch {}: {:.6f} s before what it needs\n",
                             what, of, microbatch, early - late);
      }
    };
    for (int j = 0; j < microbatches; ++j) {
      after("activations", stage, j, times.at({Op::send_forward, stage, j}).start,
            times.at({Op::receive_forward, stage + 1, j}).end);
      after("forward", stage + 1, j, times.at({Op::forward, stage, j}).end,
            times.at({Op::forward, stage + 1, j}).start);
      after("gradients", stage + 1, j, times.at({Op::send_backward, stage + 1, j}).start,
            times.at({Op::receive_backward, stage, j}).end);
      after("backward", stage, j, times.at({Op::backward, stage + 1, j}).end,
            times.at({Op::backward, stage, j}).start);
    }
  }
  return wrong;
}

int run_rank() {
  auto world = sprat::Communicator::join();
  const auto schedule = sprat::mp::make_schedule(
      {.kind = "1f1b", .shape = {.ranks = world.size(), .microbatches = microbatches}});
  SlowStages stages(world.size() - 1);
  sprat::Pipeline pipeline(world, schedule, stages);
  pipeline.run();  // connections are made
  // Between the two looks at the clock every rank begins and ends.
  const auto begin = std::chrono::steady_clock::now();
  world.barrier();
  pipeline.run();
  world.barrier();
  const double passed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const sprat::mp::Timeline timeline = pipeline.timeline();
  std::string wrong = disorder(pipeline.schedule(), timeline, world.hosts());
  if (timeline.makespan > passed + 2 * timeline.clock_error) {
    wrong += fmt::format("the makespan is {:.6f} s, and the run took {:.6f} s\n", timeline.makespan,
                         passed);
  }
  // Clocks that may be wrong by as much would order nothing.
  if (timeline.clock_error <= 0 || timeline.clock_error > timeline.makespan) {
    wrong += fmt::format("clocks may be wrong by {:.6f} s\n", timeline.clock_error);
  }
  if (world.rank() == 0) {
    fmt::print("makespan {:.4f} s, clocks right to {:.6f} s\n{}", timeline.makespan,
               timeline.clock_error, wrong);
  }
  world.barrier();
  return wrong.empty() ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run_rank();
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
