// Activations that leave memory and come back beside real computation, with horizons of 1 to 8.
//
//   sprat_bench_offload throttled      through links of known rates: a tape takes 0.4, 0.8 and 1.5
//                                      of the time of a backward
//   sprat_bench_offload file FOLDER    through files on that disk
//
// One rank computes the MLPs of a transformer, forward and backward. Horizons take turns, so that
// whatever else the machine does meets all of them. A row has the medians of a step's time and of
// its stall (for loads, and for stores that must have left), the stall that the model has from the
// times of the largest horizon, as `sprat train` measures them, and the most that tapes took of
// memory. Gradients are compared bit by bit with
// those of a run in which nothing leaves.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "io/tier.hpp"
#include "mp/activation_store.hpp"
#include "sprat/layers.hpp"
#include "sprat/mp.hpp"

namespace {

using namespace sprat;
using Clock = std::chrono::steady_clock;

constexpr int horizons = 8;

struct Shape {
  int layers = 8, rows = 512, width = 512, microbatches = 1;
  std::size_t stream() const { return std::size_t(rows) * std::size_t(width); }
  /// The input, and what the inner layer makes before and behind its GELU.
  std::size_t tape() const { return 9 * stream(); }
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// y = x + down(gelu(up(x))), so many times.
class Mlps {
 public:
  explicit Mlps(const Shape& shape)
      : shape_(shape),
        gemm_(open_gemm_backend(choose_gemm_backend())),
        up_(weights(0.7f)),
        down_(weights(1.3f)),
        up_gradient_(up_.size()),
        down_gradient_(down_.size()),
        stream_(shape.stream()),
        other_stream_(shape.stream()),
        inner_(4 * shape.stream()) {}

  ActivationProgram program() const {
    const std::vector<mp::StageLayers> stages = {
        {.first = 0,
         .tape_bytes =
             std::vector<std::size_t>(std::size_t(shape_.layers), shape_.tape() * sizeof(float))}};
    return activation_program(
        mp::make_schedule(
            {.kind = "gpipe", .shape = {.ranks = 1, .microbatches = shape_.microbatches}}),
        0, stages);
  }

  void begin_step() {
    std::ranges::fill(up_gradient_, 0.0f);
    std::ranges::fill(down_gradient_, 0.0f);
  }
  void forward(const Tape& of, float* tape) {
    if (of.layer == 0) {
      fill_stream(static_cast<float>(of.microbatch + 1));
    }
    float *const u = tape + shape_.stream(), *const gated = u + 4 * shape_.stream();
    std::ranges::copy(stream_, tape);
    layers::linear_forward(up(of.layer), tape, u);
    layers::gelu_forward({u, 4 * shape_.stream()}, gated);
    layers::linear_forward_onto(down(of.layer), tape, gated, stream_.data());
  }
  void backward(const Tape& of, const float* tape) {
    if (of.layer + 1 == shape_.layers) {
      fill_stream(0.01f);  // the gradient of a loss
    }
    const float *const u = tape + shape_.stream(), *const gated = u + 4 * shape_.stream();
    layers::linear_backward_input(down(of.layer), stream_.data(), inner_.data());
    layers::linear_backward_weight(
        *gemm_, down(of.layer).shape,
        {.x = gated, .dy = stream_.data(), .weight = weight_of(down_gradient_, of.layer)});
    layers::gelu_backward_input({u, 4 * shape_.stream()}, inner_.data());
    layers::linear_backward_weight(
        *gemm_, up(of.layer).shape,
        {.x = tape, .dy = inner_.data(), .weight = weight_of(up_gradient_, of.layer)});
    layers::linear_backward_input(up(of.layer), inner_.data(), other_stream_.data());
    layers::residual_backward_input(stream_, other_stream_.data());
    std::swap(stream_, other_stream_);
  }
  /// Every bit of a step.
  std::vector<float> gradients() const {
    std::vector<float> all = up_gradient_;
    all.insert(all.end(), down_gradient_.begin(), down_gradient_.end());
    return all;
  }

 private:
  std::size_t weight_count() const {
    return 4 * std::size_t(shape_.width) * std::size_t(shape_.width);
  }
  std::span<const float> weight_of(const std::vector<float>& all, int layer) const {
    return std::span(all).subspan(std::size_t(layer) * weight_count(), weight_count());
  }
  std::span<float> weight_of(std::vector<float>& all, int layer) const {
    return std::span(all).subspan(std::size_t(layer) * weight_count(), weight_count());
  }
  std::vector<float> weights(float phase) const {
    std::vector<float> all(std::size_t(shape_.layers) * weight_count());
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = std::sin(phase * static_cast<float>(i)) / static_cast<float>(shape_.width);
    }
    return all;
  }
  layers::Linear up(int layer) const {
    return {*gemm_, {shape_.rows, shape_.width, 4 * shape_.width}, weight_of(up_, layer)};
  }
  layers::Linear down(int layer) const {
    return {*gemm_, {shape_.rows, 4 * shape_.width, shape_.width}, weight_of(down_, layer)};
  }
  void fill_stream(float scale) {
    for (std::size_t i = 0; i < stream_.size(); ++i) {
      stream_[i] = scale * static_cast<float>(i % 101) / 101;
    }
  }

  Shape shape_;
  std::shared_ptr<const GemmBackend> gemm_;
  std::vector<float> up_, down_, up_gradient_, down_gradient_, stream_, other_stream_, inner_;
};

/// One way to hold tapes, and what its steps came to.
class Holder {
 public:
  Holder(Mlps& mlps, const std::string& tier, const OffloadOptions& offload)
      : mlps_(mlps),
        program_(mlps.program()),
        tier_(io::open_any_tier(tier)),
        store_(program_, offload, *tier_) {}

  void step() {
    const double stalled = waited();
    const auto begin = Clock::now();
    mlps_.begin_step();
    for (const TapeStep& step : program_.steps) {
      const Tape& tape = program_.tapes[std::size_t(step.tape)];
      store_.begin_step();
      auto* const floats = reinterpret_cast<float*>(store_.storage(tape.storages[0]).data());
      step.pass == TapePass::forward ? mlps_.forward(tape, floats) : mlps_.backward(tape, floats);
      store_.end_step();
    }
    seconds_.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    stalls_.push_back(waited() - stalled);
    if (store_.times()) {
      times_.push_back(*store_.times());
    }
  }
  /// What came so far was to warm up.
  void forget() {
    seconds_.clear();
    stalls_.clear();
    times_.clear();
  }

  double seconds() const { return median(seconds_); }
  double stall() const { return median(stalls_); }
  double megabytes() const { return static_cast<double>(store_.bytes_high_water()) / 1e6; }
  const ActivationProgram& program() const { return program_; }
  /// Medians over steps.
  mp::ActivationTimes times() const {
    mp::ActivationTimes all = times_.at(0);
    for (auto part :
         {&mp::ActivationTimes::steps, &mp::ActivationTimes::stores, &mp::ActivationTimes::loads}) {
      for (std::size_t at = 0; at < (all.*part).size(); ++at) {
        std::vector<double> values;
        for (const mp::ActivationTimes& one : times_) {
          values.push_back((one.*part)[at]);
        }
        (all.*part)[at] = median(values);
      }
    }
    return all;
  }

 private:
  double waited() const {
    return store_.counters().stall_seconds + store_.counters().store_wait_seconds;
  }

  Mlps& mlps_;
  ActivationProgram program_;
  std::unique_ptr<io::Tier> tier_;
  mp::ActivationStore store_;
  std::vector<double> seconds_, stalls_;
  std::vector<mp::ActivationTimes> times_;
};

/// All bytes of tapes stay.
constexpr OffloadOptions keeping = {.min_bytes = ~std::size_t{0}};

/// By horizon, all of them in turns, and beside them one that keeps everything.
class Trial {
 public:
  Trial(Mlps& mlps, const std::string& tier) : mlps_(mlps), kept_(mlps, "memory", keeping) {
    for (int horizon = 1; horizon <= horizons; ++horizon) {
      by_horizon_.push_back(
          std::make_unique<Holder>(mlps, tier, OffloadOptions{.horizon = horizon}));
    }
  }

  void run(int steps) {
    turn();
    kept_.forget();
    for (const auto& holder : by_horizon_) {
      holder->forget();
    }
    for (int step = 0; step < steps; ++step) {
      turn();
    }
  }
  void print(const std::string& what) const {
    const mp::ActivationTimes times = by_horizon_.back()->times();
    const HorizonChoice choice =
        choose_horizon(by_horizon_.back()->program(), {.horizon = horizons}, times);
    fmt::print(
        "\n{}: a tape is stored in {:.1f} ms and loaded in {:.1f} ms; gradients have {} bits\n"
        "horizon   step ms   stall ms   by model   above model   tapes MB\n",
        what, 1e3 * times.stores[0], 1e3 * times.loads[0], equal_ ? "the same" : "OTHER");
    for (int horizon = 1; horizon <= horizons; ++horizon) {
      const Holder& one = *by_horizon_[std::size_t(horizon) - 1];
      const double model = choice.stalls[std::size_t(horizon) - 1];
      fmt::print("{:7} {:9.1f} {:10.1f} {:10.1f} {:11.1f} % {:10.1f}{}\n", horizon,
                 1e3 * one.seconds(), 1e3 * one.stall(), 1e3 * model,
                 100 * (one.stall() - model) / one.seconds(), one.megabytes(),
                 horizon == choice.horizon ? "   chosen" : "");
    }
    fmt::print("   kept {:8.1f} {:45.1f}\n", 1e3 * kept_.seconds(), kept_.megabytes());
  }

 private:
  void turn() {
    kept_.step();
    const std::vector<float> expected = mlps_.gradients();
    for (const auto& holder : by_horizon_) {
      holder->step();
      const std::vector<float> got = mlps_.gradients();
      equal_ = equal_ && std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) == 0;
    }
  }

  Mlps& mlps_;
  Holder kept_;
  std::vector<std::unique_ptr<Holder>> by_horizon_;
  bool equal_ = true;
};

void run_trial(Mlps& mlps, const std::string& tier, const std::string& what, int steps) {
  Trial trial(mlps, tier);
  trial.run(steps);
  trial.print(what);
}

/// Of one layer and micro-batch, with nothing else to do.
double backward_seconds(Mlps& mlps) {
  Holder kept(mlps, "memory", keeping);
  for (int step = 0; step < 5; ++step) {
    kept.step();
  }
  std::vector<double> seconds;
  const mp::ActivationTimes times = kept.times();
  for (std::size_t step = 0; step < times.steps.size(); ++step) {
    if (kept.program().steps[step].pass == TapePass::backward) {
      seconds.push_back(times.steps[step]);
    }
  }
  return median(seconds);
}

void run_throttled(Mlps& mlps, const Shape& shape, int steps) {
  const double backward = backward_seconds(mlps);
  for (const double share : {0.4, 0.8, 1.5}) {
    const auto rate = static_cast<std::size_t>(static_cast<double>(shape.tape() * sizeof(float)) /
                                               (share * backward));
    run_trial(mlps, fmt::format("throttled:{}", rate),
              fmt::format("link of {:.0f} MB/s, a tape takes {} of a backward of {:.1f} ms",
                          static_cast<double>(rate) / 1e6, share, 1e3 * backward),
              steps);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Activations that leave memory beside real computation, by horizon.");
  app.require_subcommand(1);
  Shape shape;
  int steps = 7;
  std::string folder;
  app.add_option("--layers", shape.layers, "MLPs");
  app.add_option("--rows", shape.rows, "Tokens of a micro-batch");
  app.add_option("--width", shape.width, "Of the stream; inner layers have four times that");
  app.add_option("--microbatches", shape.microbatches, "All go forward before they come back");
  app.add_option("--steps", steps, "Of each horizon, beside one to warm up");
  app.add_subcommand("throttled", "Through links of known rates")->callback([&] {
    Mlps mlps(shape);
    run_throttled(mlps, shape, steps);
  });
  auto* const file = app.add_subcommand("file", "Through files");
  file->add_option("folder", folder, "On the disk")->required();
  file->callback([&] {
    Mlps mlps(shape);
    run_trial(mlps, "file:" + folder, "file:" + folder, steps);
  });
  CLI11_PARSE(app, argc, argv);
}
