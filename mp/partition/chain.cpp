// The best cut of a chain of layers into stages, where a stage's memory depends on its place in the
// pipeline.
// Cost: O(p L^2) for p stages of L layers; O(p L^4) for pipeline_time where messages take time.
// Use: for models that are layers one after another. Papers: Narayanan et al., PipeDream, 2019
// (messages); Zheng et al., Alpa, 2022 (pipeline_time).
#include <algorithm>
#include <limits>
#include <set>
#include <string_view>

#include "comm/base/check.hpp"
#include "sprat/partition.hpp"

namespace sprat::mp {
namespace {

constexpr double boundless = std::numeric_limits<double>::infinity();

/// A number for each begin < end of a chain.
class Table {
 public:
  explicit Table(std::size_t layers) : width_(layers + 1), values_(width_ * width_) {}
  double& at(std::size_t begin, std::size_t end) { return values_[begin * width_ + end]; }
  double at(std::size_t begin, std::size_t end) const { return values_[begin * width_ + end]; }

 private:
  std::size_t width_;
  std::vector<double> values_;
};

/// How a stage's value is joined to that of the stages before it.
enum class Join { largest, sum };

class ChainCut {
 public:
  ChainCut(std::span<const ModelPiece> layers, const ChainRequest& request)
      : layers_(layers),
        request_(request),
        stages_(static_cast<std::size_t>(request.stages)),
        time_(layers.size()),
        parameters_(layers.size()),
        activations_(layers.size()) {
    for (std::size_t begin = 0; begin < layers_.size(); ++begin) {
      measure_from(begin);
    }
  }

  std::vector<ChainStage> run() const {
    const auto time_if_it_fits = [this](std::size_t stage, std::size_t begin, std::size_t end) {
      return memory(stage, begin, end) <= capacity(stage) ? time_.at(begin, end) : boundless;
    };
    const Found even = least(Join::largest, time_if_it_fits);
    if (even.value == boundless) {
      refuse();
    }
    // Without messages every cut has the same sum, so the least bottleneck has the least of both.
    if (request_.objective == ChainObjective::bottleneck || request_.seconds_per_byte == 0) {
      return described(even.begins);
    }
    return described(least_pipeline_time(even));
  }

 private:
  struct Found {
    double value = boundless;
    std::vector<std::size_t> begins;
  };

  void measure_from(std::size_t begin) {
    std::set<std::string_view> held;
    double time = 0, parameters = 0, activations = 0;
    for (std::size_t end = begin + 1; end <= layers_.size(); ++end) {
      const ModelPiece& layer = layers_[end - 1];
      time += layer.time;
      activations += layer.activation_bytes;
      parameters += layer.parameter_bytes;
      for (const SharedParameter& shared : layer.shared) {
        parameters += held.insert(shared.name).second ? shared.bytes : 0;
      }
      const double received = begin > 0 ? layers_[begin - 1].output_bytes : 0;
      const double sent = end < layers_.size() ? layer.output_bytes : 0;
      time_.at(begin, end) = time + (received + sent) * request_.seconds_per_byte;
      parameters_.at(begin, end) = parameters;
      activations_.at(begin, end) = activations;
    }
  }

  double memory(std::size_t stage, std::size_t begin, std::size_t end) const {
    const int kept = std::min(request_.stages - static_cast<int>(stage), request_.microbatches);
    return request_.state_factor * parameters_.at(begin, end) + kept * activations_.at(begin, end);
  }

  double capacity(std::size_t stage) const {
    const std::vector<double>& capacity = request_.capacity_bytes;
    return capacity.empty() ? boundless : capacity[capacity.size() == 1 ? 0 : stage];
  }

  /// Dynamic programming over (stages, layers): the best cut of a beginning does not depend on what
  /// follows. Of equal begins the first stays, which makes the last stages long.
  template <class Value>
  Found least(Join join, const Value& value_of) const {
    const std::size_t count = layers_.size();
    std::vector values(stages_ + 1, std::vector<double>(count + 1, boundless));
    std::vector from(stages_ + 1, std::vector<std::size_t>(count + 1));
    values[0][0] = -boundless;
    if (join == Join::sum) {
      values[0][0] = 0;
    }
    for (std::size_t stage = 1; stage <= stages_; ++stage) {
      for (std::size_t end = stage; end <= count; ++end) {
        for (std::size_t begin = stage - 1; begin < end; ++begin) {
          const double before = values[stage - 1][begin];
          if (before == boundless) {
            continue;
          }
          const double mine = value_of(stage - 1, begin, end);
          const double both = join == Join::sum ? before + mine : std::max(before, mine);
          if (both < values[stage][end]) {
            values[stage][end] = both;
            from[stage][end] = begin;
          }
        }
      }
    }
    Found found{.value = values[stages_][count], .begins = std::vector<std::size_t>(stages_)};
    for (std::size_t stage = stages_, end = count; stage > 0 && found.value < boundless; --stage) {
      found.begins[stage - 1] = end = from[stage][end];
    }
    return found;
  }

  /// For each time that a stage may take at most, the least sum; the best of them is the best of
  /// all, since it is among the cuts whose slowest stage takes just that time.
  std::vector<std::size_t> least_pipeline_time(const Found& even) const {
    std::set<double> limits;
    for (std::size_t begin = 0; begin < layers_.size(); ++begin) {
      for (std::size_t end = begin + 1; end <= layers_.size(); ++end) {
        limits.insert(time_.at(begin, end));
      }
    }
    const double repeats = request_.microbatches - 1;
    const auto least_sum_within = [this](double limit) {
      return least(Join::sum, [this, limit](std::size_t stage, std::size_t begin, std::size_t end) {
        const bool fits = memory(stage, begin, end) <= capacity(stage);
        return fits && time_.at(begin, end) <= limit ? time_.at(begin, end) : boundless;
      });
    };
    const double least_sum = least_sum_within(boundless).value;
    Found best;
    for (auto limit = limits.lower_bound(even.value); limit != limits.end(); ++limit) {
      if (least_sum + repeats * *limit >= best.value) {
        break;  // larger limits cannot make up for what they cost
      }
      Found found = least_sum_within(*limit);
      found.value += repeats * *limit;
      if (found.value < best.value) {
        best = std::move(found);
      }
    }
    return best.begins;
  }

  std::vector<ChainStage> described(const std::vector<std::size_t>& begins) const {
    std::vector<ChainStage> stages;
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      const std::size_t begin = begins[stage];
      const std::size_t end = stage + 1 < stages_ ? begins[stage + 1] : layers_.size();
      stages.push_back({.begin = begin,
                        .end = end,
                        .time = time_.at(begin, end),
                        .memory_bytes = memory(stage, begin, end)});
    }
    return stages;
  }

  /// The cut that lacks least shows where memory is short, and by how much.
  [[noreturn]] void refuse() const {
    const auto lack = [this](std::size_t stage, std::size_t begin, std::size_t end) {
      return memory(stage, begin, end) - capacity(stage);
    };
    const Found nearest = least(Join::largest, lack);
    std::size_t worst = 0;
    const std::vector<ChainStage> stages = described(nearest.begins);
    const auto lacks = [&](std::size_t stage) {
      return stages[stage].memory_bytes - capacity(stage);
    };
    for (std::size_t stage = 1; stage < stages_; ++stage) {
      worst = lacks(stage) > lacks(worst) ? stage : worst;
    }
    const ChainStage& stage = stages[worst];
    const double missing = stage.memory_bytes - capacity(worst);
    const std::string remedy =
        request_.capacity_bytes.size() == 1
            ? text("the least that works is ", stage.memory_bytes, " bytes a stage")
            : text("the least that works is ", missing, " bytes more for each stage");
    throw Error(
        ErrorCode::invalid_argument,
        text("no cut in ", stages_, " stages fits: in the nearest, stage ", worst, " (layers ",
             stage.begin, " to ", stage.end - 1, ", \"", layers_[stage.begin].name, "\" to \"",
             layers_[stage.end - 1].name, "\") needs ", stage.memory_bytes, " bytes and may have ",
             capacity(worst), "; ", remedy));
  }

  const std::span<const ModelPiece> layers_;
  const ChainRequest& request_;
  const std::size_t stages_;
  Table time_, parameters_, activations_;  // of the layers from begin to end
};

/// Sums and products of so large numbers are far from infinity, which would be no cut's cost.
constexpr double largest_number = 1e100;

template <class... Owner>
void require_in_range(double value, const Owner&... owner) {
  require(value >= 0 && value <= largest_number, owner..., " is ", value, ", not from 0 to ",
          largest_number);
}

void require_in_range(const ModelPiece& layer) {
  const auto check = [&layer](double value, std::string_view what) {
    require_in_range(value, what, " of layer \"", layer.name, "\"");
  };
  check(layer.time, "time");
  check(layer.parameter_bytes, "parameter_bytes");
  check(layer.activation_bytes, "activation_bytes");
  check(layer.output_bytes, "output_bytes");
  for (const SharedParameter& shared : layer.shared) {
    check(shared.bytes, shared.name);
  }
}

}  // namespace

std::vector<ChainStage> cut_chain(std::span<const ModelPiece> layers, const ChainRequest& request) {
  // Three tables of layers squared.
  constexpr std::size_t most_layers = 2000;
  require(layers.size() <= most_layers, "a chain has at most ", most_layers, " layers, not ",
          layers.size(), "; join some, or use method tree");
  require(request.stages >= 1 && static_cast<std::size_t>(request.stages) <= layers.size(),
          "a chain of ", layers.size(), " layers has 1 to ", layers.size(), " stages, not ",
          request.stages);
  require(request.microbatches >= 1, "a step has at least 1 micro-batch, not ",
          request.microbatches);
  const std::size_t limits = request.capacity_bytes.size();
  require(limits <= 1 || limits == static_cast<std::size_t>(request.stages), "capacities of ",
          limits, " stages are given for ", request.stages, "; give one, or one for each stage");
  for (std::size_t stage = 0; stage < limits; ++stage) {
    const double capacity = request.capacity_bytes[stage];
    require(capacity > -boundless, "capacity ", stage, " is ", capacity, ", no number of bytes");
  }
  require_in_range(request.seconds_per_byte, "seconds_per_byte");
  require_in_range(request.state_factor, "state_factor");
  for (const ModelPiece& layer : layers) {
    require_in_range(layer);
  }
  return ChainCut(layers, request).run();
}

}  // namespace sprat::mp
