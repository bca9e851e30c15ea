// A model of two layers whose parameters, gradients and optimizer state are shared among the ranks:
// mpirun -np 4 ./sharded_training [FOLDER]   saves into FOLDER, and goes on from what is there
#include <cmath>
#include <exception>
#include <iostream>
#include <optional>
#include <span>
#include <vector>

#include "sprat/sprat.hpp"

namespace {

constexpr int width = 64, samples = 32;  // samples of each rank in a step

/// Any function of an index will do, if it is the same everywhere.
float initial(std::uint64_t i) { return 0.2f * std::sin(static_cast<float>(i % 1009)); }

/// What the model is to learn: y = 2 x, turned by one place.
float target(const std::vector<float>& x, int i) { return 2 * x[(i + 1) % width]; }

/// y = W x.
std::vector<float> multiply(std::span<const float> w, const std::vector<float>& x) {
  std::vector<float> y(width);
  for (int i = 0; i < width; ++i) {
    for (int j = 0; j < width; ++j) {
      y[i] += w[i * width + j] * x[j];
    }
  }
  return y;
}

/// dW += dy x^T; gives dx = W^T dy.
std::vector<float> back(std::span<const float> w, const std::vector<float>& x,
                        const std::vector<float>& dy, std::span<float> dw) {
  std::vector<float> dx(width);
  for (int i = 0; i < width; ++i) {
    for (int j = 0; j < width; ++j) {
      dw[i * width + j] += dy[i] * x[j];
      dx[j] += w[i * width + j] * dy[i];
    }
  }
  return dx;
}

/// One rank's samples through the model and back; the sum of squared errors.
double pass(sprat::ShardedModel& model, int rank, int step) {
  std::vector<std::vector<float>> x(samples, std::vector<float>(width)), h(samples), dh(samples);
  double loss = 0;
  model.acquire(0);
  for (int s = 0; s < samples; ++s) {
    for (int i = 0; i < width; ++i) {
      x[s][i] = std::cos(static_cast<float>((step * 131 + rank * 17 + s) * width + i));
    }
    h[s] = multiply(model.parameter(0, 0), x[s]);
  }
  model.release(0);
  model.acquire(1);
  for (int s = 0; s < samples; ++s) {
    std::vector<float> dy = multiply(model.parameter(1, 0), h[s]);
    for (int i = 0; i < width; ++i) {
      dy[i] -= target(x[s], i);
      loss += 0.5 * static_cast<double>(dy[i] * dy[i]);
    }
    dh[s] = dy;
  }
  model.release(1);
  model.acquire(1);  // backward
  for (int s = 0; s < samples; ++s) {
    dh[s] = back(model.parameter(1, 0), h[s], dh[s], model.gradient(1, 0));
  }
  model.release(1);
  model.reduce(1);
  model.acquire(0);
  for (int s = 0; s < samples; ++s) {
    back(model.parameter(0, 0), x[s], dh[s], model.gradient(0, 0));
  }
  model.release(0);
  model.reduce(0);
  return loss;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto world = sprat::Communicator::join();
    const std::vector<std::int64_t> shape = {width, width};
    sprat::ShardedModel model(
        world,
        {{.name = "first", .parameters = {{.name = "w1", .shape = shape, .initial = initial}}},
         {.name = "second", .parameters = {{.name = "w2", .shape = shape, .initial = initial}}}},
        {.hybrid_shard_degree = 0});  // all ranks share one copy: ZeRO-3
    sprat::TrainingState state;
    std::optional<sprat::CheckpointWriter> checkpoints;
    if (argc > 1) {
      if (const auto latest = sprat::latest_checkpoint(world, argv[1])) {
        state = sprat::load_checkpoint(model, *latest);
      }
      checkpoints.emplace(model, sprat::CheckpointOptions{.folder = argv[1]});
    }
    for (const auto last = state.step + 200; state.step < last;) {
      double loss = pass(model, world.rank(), static_cast<int>(state.step));
      const double count = double{samples} * world.size();
      model.step(0.01f, count);  // the sum over all samples, divided by their number
      ++state.step;
      model.sum_over_ranks({&loss, 1});
      if (world.rank() == 0 && state.step % 50 == 0) {
        std::cout << "step " << state.step << ": loss " << loss / count << std::endl;
      }
      if (checkpoints) {
        checkpoints->poll();
        if (state.step % 100 == 0) {
          checkpoints->save(state);  // written while training goes on
        }
      }
    }
    if (checkpoints) {
      checkpoints->wait();
    }
  } catch (const std::exception& error) {
    std::cerr << "sharded_training: " << error.what() << '\n';
    return 1;
  }
}
