#include "tests/unit/train/model/played_stages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "train/model/random.hpp"

namespace sprat::train {

std::shared_ptr<const GemmBackend> stages_gemm() {
  return open_gemm_backend(choose_gemm_backend());
}

void enlarge(WholeParameters& parameters, const std::vector<UnitSpec>& units) {
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    const std::vector<HeldTensor> tensors = held_tensors(units[unit]);
    const std::size_t own = units[unit].tied_to < 0 ? tensors.size() : 0;
    for (std::size_t index = 0; index < own; ++index) {
      auto values = parameters.writable_values(static_cast<int>(unit), static_cast<int>(index));
      std::size_t at = 0;
      for (int part = 0; part < tensors[index].parts; ++part) {
        // By its place in the whole tensor, of which this may be a box.
        const auto number = static_cast<std::size_t>(tensors[index].first + part);
        const ParameterSpec& parameter = units[unit].parameters[number];
        const RandomStream stream(3, parameter.name);
        for_each_run(whole_box(parameter.shape), held_box(parameter), [&](BoxRun run) {
          for (std::int64_t i = 0; i < run.count; ++i) {
            values[at++] +=
                static_cast<float>(0.2 * stream.normal(static_cast<std::uint64_t>(run.offset + i)));
          }
        });
      }
    }
  }
}

std::vector<std::int32_t> some_tokens(std::size_t count, int vocabulary, const char* purpose) {
  const RandomStream stream(7, purpose);
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<std::int32_t>(stream.bits(i) % static_cast<std::uint64_t>(vocabulary));
  }
  return tokens;
}

std::vector<PlayedBatch> played_batches(const GptShape& shape,
                                        const std::vector<std::pair<int, int>>& lengths) {
  std::vector<PlayedBatch> batches;
  for (const auto& [length, sequences] : lengths) {
    const std::string number = std::to_string(batches.size());
    const auto count = static_cast<std::size_t>(length * sequences);
    batches.push_back({.length = length,
                       .sequences = sequences,
                       .tokens = some_tokens(count, shape.vocabulary, ("in" + number).c_str()),
                       .targets = some_tokens(count, shape.vocabulary, ("out" + number).c_str())});
  }
  return batches;
}

WatchedParameters::WatchedParameters(const std::vector<UnitSpec>& units)
    : units_(units), whole_(units) {
  enlarge(whole_, units);
}

void WatchedParameters::acquire(int unit) {
  EXPECT_EQ(acquired_, -1) << "unit " << unit << " is acquired beside another";
  acquired_ = unit;
  read_ = false;
  visits_.push_back({.unit = unit, .pass = VisitPass::forward, .microbatch = microbatch_});
}

void WatchedParameters::release(int unit) {
  EXPECT_EQ(acquired_, unit);
  VisitPass& pass = visits_.back().pass;
  pass = pass == VisitPass::gradient && read_ ? VisitPass::backward : pass;
  acquired_ = -1;
}

std::span<const float> WatchedParameters::values(int unit, int index) const {
  EXPECT_EQ(acquired_, unit) << "values of a unit that is not acquired";
  read_ = true;
  return whole_.values(unit, index);
}

std::span<float> WatchedParameters::gradients(int unit, int index, int microbatch) {
  EXPECT_EQ(acquired_, unit) << "gradients of a unit that is not acquired";
  EXPECT_EQ(microbatch, microbatch_) << "gradients of another micro-batch than is played";
  visits_.back().pass = VisitPass::gradient;
  return whole_.gradients(unit, index, microbatch);
}

void WatchedParameters::reduce(int unit, int microbatch) {
  EXPECT_EQ(microbatch, microbatch_) << "another micro-batch is reduced than is played";
  const UnitSpec& spec = units_[static_cast<std::size_t>(unit)];
  for (int index = 0; std::cmp_less(index, held_tensors(spec).size()); ++index) {
    const auto sums = whole_.gradients(unit, index, microbatch);
    const auto [at, fresh] =
        taken_.try_emplace({spec.name, index, microbatch_}, sums.begin(), sums.end());
    EXPECT_TRUE(fresh) << spec.name << " is reduced twice for micro-batch " << microbatch_;
    std::ranges::fill(sums, 0.0f);
  }
}

std::vector<PlayedRank> played_ranks(const GptShape& shape, const PlayedPlan& plan,
                                     const std::vector<PlayedBatch>& batches,
                                     tensor::Group* group) {
  const int stages = static_cast<int>(plan.first_layer.size());
  const int microbatches = static_cast<int>(batches.size());
  const mp::Schedule schedule = mp::make_schedule(
      {.kind = plan.schedule,
       .shape = {.ranks = stages / plan.stages_per_rank,
                 .microbatches = microbatches,
                 .stages_per_rank = plan.stages_per_rank},
       .recomputed = std::vector<bool>(static_cast<std::size_t>(stages), plan.recomputed)});
  int most = 0;
  for (const PlayedBatch& batch : batches) {
    most = std::max(most, batch.length * batch.sequences);
  }
  std::vector<PlayedRank> ranks;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    GptStagesOptions options{.placement = {.first_layer = plan.first_layer, .stages = {}},
                             .group = group,
                             .context_ranks = plan.context_ranks,
                             .context = plan.context,
                             .max_tokens = most,
                             .microbatches = microbatches,
                             .actions = mp::computations_of(schedule, rank),
                             .checkpoint_blocks = plan.checkpoint_blocks,
                             .activations = plan.activations};
    for (int stage = 0; stage < stages; ++stage) {
      if (schedule.rank_of_stage[static_cast<std::size_t>(stage)] == rank) {
        options.placement.stages.push_back(stage);
      }
    }
    if (group != nullptr) {
      options.placement.tensor = group->how();
      options.placement.tensor_rank = group->rank();
    }
    if (plan.context_ranks != nullptr) {
      options.placement.context_degree = plan.context_ranks->size();
      options.placement.context_rank = plan.context_ranks->rank();
    }
    const std::vector<UnitSpec> units = gpt_units(shape, 5, options.placement);
    auto parameters = std::make_unique<WatchedParameters>(units);
    auto own = std::make_unique<GptStages>(shape, options, plan.gemm ? plan.gemm : stages_gemm(),
                                           *parameters);
    ranks.push_back({options, units, std::move(parameters), std::move(own)});
  }
  return ranks;
}

namespace {

/// What stages give each other, by stage that takes it and micro-batch.
using Messages = std::map<std::pair<int, int>, std::vector<float>>;

class Player {
 public:
  Player(const GptShape& shape, std::vector<PlayedRank>& ranks,
         const std::vector<PlayedBatch>& batches)
      : shape_(shape), ranks_(ranks), batches_(batches), next_(ranks.size()) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        while (next_[rank] < ranks_[rank].options.actions.size() && act(rank)) {
          ++next_[rank];
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      EXPECT_EQ(next_[rank], ranks_[rank].options.actions.size()) << "rank " << rank << " waits";
    }
  }

 private:
  bool act(std::size_t rank) {
    const mp::Action& action = ranks_[rank].options.actions[next_[rank]];
    const int stage = action.stage, microbatch = action.microbatch;
    GptStages& stages = *ranks_[rank].stages;
    ranks_[rank].parameters->play(microbatch);
    const int last = static_cast<int>(ranks_[rank].options.placement.first_layer.size()) - 1;
    const bool forward = action.op == mp::Op::forward;
    const bool halves = action.op == mp::Op::backward_input;
    if (action.op == mp::Op::recompute) {
      stages.recompute(stage, microbatch);
    } else if (action.op == mp::Op::backward_weight) {
      stages.backward_weight(stage, microbatch);
    } else if (forward) {
      if (stage > 0 && !outputs_.contains({stage, microbatch})) {
        return false;
      }
      std::vector<float> output(stages.most_elements(stage));
      output.resize(stages.forward(stage, microbatch, outputs_[{stage, microbatch}], output));
      outputs_[{stage + 1, microbatch}] = std::move(output);
    } else {
      if (stage < last && !gradients_.contains({stage, microbatch})) {
        return false;
      }
      const PlayedBatch& batch = batches_[static_cast<std::size_t>(microbatch)];
      const tensor::Group* const group = ranks_[rank].options.group;
      const int all = batch.length * batch.sequences;
      const auto rows = static_cast<std::size_t>(group ? group->own_rows(all).count : all);
      std::vector<float> input(stage == 0 ? 0 : rows * static_cast<std::size_t>(shape_.width));
      const std::vector<float>& output = gradients_[{stage, microbatch}];
      halves ? stages.backward_input(stage, microbatch, output, input)
             : stages.backward(stage, microbatch, output, input);
      gradients_[{stage - 1, microbatch}] = std::move(input);
    }
    return true;
  }

  const GptShape& shape_;
  std::vector<PlayedRank>& ranks_;
  const std::vector<PlayedBatch>& batches_;
  std::vector<std::size_t> next_;
  Messages outputs_, gradients_;
};

}  // namespace

PlayedResult play(const GptShape& shape, std::vector<PlayedRank>& ranks,
                  const std::vector<PlayedBatch>& batches, float loss_scale) {
  for (PlayedRank& rank : ranks) {
    const std::vector<int>& stages = rank.options.placement.stages;
    const int last = static_cast<int>(rank.options.placement.first_layer.size()) - 1;
    std::vector<MicroBatch> microbatches;
    for (const PlayedBatch& batch : batches) {
      MicroBatch one{.length = batch.length};
      // Own rows alone do not say how many there are.
      if (stages.front() == 0 || rank.options.placement.tensor.sequence_parallel) {
        one.tokens = batch.tokens;
      }
      if (stages.back() == last) {
        one.targets = batch.targets;
      }
      microbatches.push_back(one);
    }
    rank.stages->begin_step(microbatches, loss_scale);
  }
  Player(shape, ranks, batches).run();
  PlayedResult result;
  for (const PlayedRank& rank : ranks) {
    const PlayedGradients& taken = rank.parameters->taken();
    result.gradients.insert(taken.begin(), taken.end());
    const std::vector<int>& first = rank.options.placement.first_layer;
    if (rank.options.placement.stages.back() + 1 == static_cast<int>(first.size())) {
      const auto losses = rank.stages->losses();
      result.losses.assign(losses.begin(), losses.end());
    }
  }
  return result;
}

PlayedResult play(const GptShape& shape, const PlayedPlan& plan,
                  const std::vector<PlayedBatch>& batches) {
  std::vector<PlayedRank> ranks = played_ranks(shape, plan, batches);
  return play(shape, ranks, batches);
}

}  // namespace sprat::train
