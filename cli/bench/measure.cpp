// Batches sized for the clock, then samples, then the slowest rank of each.
#include "cli/bench/measure.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace sprat::cli {
namespace {

constexpr double shortest_sample_us = 100;
constexpr int largest_batch = 1 << 14;

double time_batch_us(Communicator& world, const std::function<void()>& operation, int batch) {
  world.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < batch; ++i) {
    operation();
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

/// Element-wise maximum over the ranks.
void keep_slowest(Communicator& world, std::vector<double>& times) {
  world.all_reduce(elements(times), ReduceOp::max, {.timeout = {}, .blocking = true}).wait();
}

struct Batch {
  int operations = 1;
  double us = 0;
};

/// The same on every rank, since it depends on the slowest rank's times alone.
Batch calibrate(Communicator& world, const std::function<void()>& operation) {
  Batch batch;
  while (true) {
    std::vector<double> time = {time_batch_us(world, operation, batch.operations)};
    keep_slowest(world, time);
    batch.us = std::max(time[0], 0.1);
    if (batch.us >= shortest_sample_us || batch.operations >= largest_batch) {
      return batch;
    }
    const double wanted = 1.2 * shortest_sample_us / batch.us;
    batch.operations = static_cast<int>(std::min<double>(
        largest_batch, std::ceil(batch.operations * std::clamp(wanted, 1.5, 16.0))));
  }
}

int sample_count(const Effort& effort, const Batch& batch) {
  if (effort.samples) {
    return std::max(*effort.samples, 1);
  }
  return static_cast<int>(std::clamp(effort.budget.count() * 1e6 / batch.us, 5.0, 100.0));
}

/// The smallest sample that at least `share` of the samples do not exceed; `sorted` is ascending.
double quantile(const std::vector<double>& sorted, double share) {
  const auto index =
      static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(index, 1, sorted.size()) - 1];
}

}  // namespace

Timing measure(Communicator& world, const std::function<void()>& operation, const Effort& effort) {
  for (int i = 0; i < effort.warmup; ++i) {
    operation();
  }
  const Batch batch = calibrate(world, operation);
  std::vector<double> times(static_cast<std::size_t>(sample_count(effort, batch)));
  for (double& time : times) {
    time = time_batch_us(world, operation, batch.operations) / batch.operations;
  }
  keep_slowest(world, times);
  std::sort(times.begin(), times.end());
  return {quantile(times, 0.5), quantile(times, 0.99), times.front()};
}

std::vector<std::vector<double>> measure_in_turns(
    Communicator& world, const std::vector<std::function<void()>>& operations,
    const Effort& effort) {
  std::vector<Batch> batches;
  Batch all;
  for (const auto& operation : operations) {
    for (int i = 0; i < effort.warmup; ++i) {
      operation();
    }
    batches.push_back(calibrate(world, operation));
    all.us += batches.back().us;
  }
  std::vector<std::vector<double>> times(
      operations.size(), std::vector<double>(static_cast<std::size_t>(sample_count(effort, all))));
  for (std::size_t sample = 0; sample < times.front().size(); ++sample) {
    for (std::size_t turn = 0; turn < operations.size(); ++turn) {
      const std::size_t i = (sample + turn) % operations.size();  // nobody is always the first
      times[i][sample] =
          time_batch_us(world, operations[i], batches[i].operations) / batches[i].operations;
    }
  }
  for (std::vector<double>& of_one : times) {
    keep_slowest(world, of_one);
  }
  return times;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

}  // namespace sprat::cli
