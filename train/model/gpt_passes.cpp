// Actions are taken apart in order, with what is known of each stage's micro-batches.
//
// Where a checkpoint has dropped activations they are made again right before the first pass that
// needs them: checkpoint by checkpoint, from the last, so that one of them is there at a time. An
// action that recomputes makes all of a stage's, ahead of the gradient that is waited for.
#include "train/model/gpt_passes.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "train/check.hpp"
#include "train/model/gpt_index.hpp"

namespace sprat::train {
namespace {

PassKind pass_of(const mp::Action& action) {
  switch (action.op) {
    case mp::Op::forward:
      return PassKind::forward;
    case mp::Op::recompute:
      return PassKind::recompute;
    case mp::Op::backward:
      return PassKind::backward;
    case mp::Op::backward_input:
      return PassKind::backward_input;
    case mp::Op::backward_weight:
      return PassKind::backward_weight;
    case mp::Op::send_forward:
    case mp::Op::receive_forward:
    case mp::Op::send_backward:
    case mp::Op::receive_backward:
    case mp::Op::unshard:
    case mp::Op::reshard:
    case mp::Op::reduce:
    case mp::Op::store:
    case mp::Op::load:
    case mp::Op::overlap:
      break;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} computes nothing of one layer; take what computations_of() gives",
                          to_text(action)));
}

/// How far a micro-batch of a stage has come.
enum class StageProgress : std::uint8_t { none, forward, recomputed, input, done };

/// What an action finds, and what it leaves.
struct Transition {
  std::vector<StageProgress> from;
  StageProgress to{};
};

// The weights' half has no gradient of the stage's output any more, so it needs the input's half.
Transition transition(PassKind pass) {
  switch (pass) {
    case PassKind::forward:
      return {{StageProgress::none}, StageProgress::forward};
    case PassKind::recompute:
      return {{StageProgress::forward}, StageProgress::recomputed};
    case PassKind::backward:
      return {{StageProgress::forward, StageProgress::recomputed}, StageProgress::done};
    case PassKind::backward_input:
      return {{StageProgress::forward, StageProgress::recomputed}, StageProgress::input};
    case PassKind::backward_weight:
      return {{StageProgress::input}, StageProgress::done};
  }
  return {};
}

class Dissection {
 public:
  Dissection(const GptShape& shape, const GptPlan& plan) : shape_(shape), plan_(plan) {}

  std::vector<LayerPass> take(const mp::Action& action) {
    check(
        std::ranges::binary_search(plan_.placement.stages, action.stage) && action.microbatch >= 0,
        "{} is of none of this rank's stages, which are {}", to_text(action),
        fmt::join(plan_.placement.stages, ", "));
    StageProgress& progress = progress_[{action.stage, action.microbatch}];
    const auto [from, to] = transition(pass_of(action));
    check(std::ranges::count(from, progress) > 0,
          "{} does not follow from what came before; each micro-batch has a forward on each stage "
          "and then a backward, whole or in halves",
          to_text(action));
    // The first half makes activations again, and they stay for the second.
    const bool dropped = progress == StageProgress::forward && plan_.checkpoint_blocks > 0;
    progress = to;
    return passes(action, dropped);
  }

  void finish() const {
    for (const auto& [of, progress] : progress_) {
      check(progress == StageProgress::done,
            "the actions end with micro-batch {} half done on stage {}; each needs a forward and "
            "all of a backward",
            of.second, of.first);
    }
  }

 private:
  std::vector<LayerPass> passes(const mp::Action& action, bool dropped) const {
    const PassKind kind = pass_of(action);
    const LayerRange range = layers_of_stage(shape_, plan_.placement, action.stage);
    std::vector<LayerPass> result;
    const auto add = [&](PassKind pass, int layer) {
      result.push_back({.pass = pass, .layer = layer, .microbatch = action.microbatch});
    };
    if (kind == PassKind::forward || kind == PassKind::recompute) {
      for (int layer = range.first; layer < range.end; ++layer) {
        if (kind == PassKind::forward || (dropped && is_block(shape_, layer))) {
          add(kind, layer);
        }
      }
      return result;
    }
    const bool makes_again = dropped && kind != PassKind::backward_weight;
    for (int layer = range.end - 1; layer >= range.first; --layer) {
      const LayerRange checkpoint = checkpoint_of(shape_, plan_, layer);
      if (makes_again && layer == checkpoint.end - 1) {
        for (int again = checkpoint.first; again < checkpoint.end; ++again) {
          add(PassKind::recompute, again);
        }
      }
      add(kind, layer);
    }
    return result;
  }

  const GptShape& shape_;
  const GptPlan& plan_;
  std::map<std::pair<int, int>, StageProgress> progress_;  // by stage and micro-batch
};

/// What adds no gradient is a forward to a sharded model: it then holds no memory for one. What
/// reads no values gathers none: gradients of weights, and of an embedding, whose tokens have none.
VisitPass visit_pass(const LayerPass& pass) {
  switch (pass.pass) {
    case PassKind::forward:
    case PassKind::recompute:
    case PassKind::backward_input:
      return VisitPass::forward;
    case PassKind::backward_weight:
      return VisitPass::gradient;
    case PassKind::backward:
      break;
  }
  return pass.layer == embedding_layer ? VisitPass::gradient : VisitPass::backward;
}

}  // namespace

bool is_block(const GptShape& shape, int layer) {
  return layer != embedding_layer && layer != head_layer(shape);
}

LayerRange checkpoint_of(const GptShape& shape, const GptPlan& plan, int layer) {
  if (plan.checkpoint_blocks == 0 || !is_block(shape, layer)) {
    return {};
  }
  const std::vector<int>& first = plan.placement.first_layer;
  const auto stage = std::ranges::upper_bound(first, layer) - first.begin() - 1;
  LayerRange blocks = layers_of_stage(shape, plan.placement, static_cast<int>(stage));
  // Checkpoints begin with the stage's first block; the last may be shorter.
  blocks.first = std::max(blocks.first, block_layer(0));
  blocks.end = std::min(blocks.end, head_layer(shape));
  const int before = (layer - blocks.first) / plan.checkpoint_blocks;
  const int begin = blocks.first + before * plan.checkpoint_blocks;
  return {.first = begin,
          .end = plan.checkpoint_blocks < blocks.end - begin ? begin + plan.checkpoint_blocks
                                                             : blocks.end};
}

std::vector<mp::Action> plain_actions(const GptPlacement& placement, int microbatches) {
  std::vector<mp::Action> actions;
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    for (const int stage : placement.stages) {
      actions.push_back({.op = mp::Op::forward, .stage = stage, .microbatch = microbatch});
    }
    for (auto stage = placement.stages.rbegin(); stage != placement.stages.rend(); ++stage) {
      actions.push_back({.op = mp::Op::backward, .stage = *stage, .microbatch = microbatch});
    }
  }
  return actions;
}

std::vector<std::vector<LayerPass>> layer_passes(const GptShape& shape, const GptPlan& plan) {
  check_placement(shape, plan.placement);
  check(plan.checkpoint_blocks >= 0, "a checkpoint of {} blocks is none; 0 keeps everything",
        plan.checkpoint_blocks);
  Dissection dissection(shape, plan);
  std::vector<std::vector<LayerPass>> result;
  for (const mp::Action& action : plan.actions) {
    result.push_back(dissection.take(action));
  }
  dissection.finish();
  return result;
}

std::vector<Visit> layer_visits(const GptShape& shape, const LayerPass& pass) {
  std::vector<int> units = units_of_layer(shape, pass.layer);
  const bool is_backward = pass.pass != PassKind::forward && pass.pass != PassKind::recompute;
  if (pass.pass == PassKind::backward_input && pass.layer == embedding_layer) {
    units.clear();  // tokens have no gradient
  }
  if (is_backward) {
    std::ranges::reverse(units);
  }
  std::vector<Visit> visits;
  std::ranges::transform(units, std::back_inserter(visits), [&](int unit) {
    return Visit{.unit = unit, .pass = visit_pass(pass), .microbatch = pass.microbatch};
  });
  return visits;
}

std::vector<Visit> gpt_visits(const GptShape& shape, const GptPlan& plan) {
  const std::vector<int> own = own_units(shape, plan.placement);
  std::vector<Visit> visits;
  for (const std::vector<LayerPass>& action : layer_passes(shape, plan)) {
    for (const LayerPass& pass : action) {
      for (Visit visit : layer_visits(shape, pass)) {
        visit.unit = own[static_cast<std::size_t>(visit.unit)];
        visits.push_back(visit);
      }
    }
  }
  return visits;
}

}  // namespace sprat::train
