// What a forward without checkpoint makes, and a checkpoint's input, are tapes, which may leave.
// All else is kept from the first pass that touches it to the last.
//
// The head's is no tape: its backward follows at once on the last rank of most schedules, and its
// logits are the largest of all, so a trip would take long and gain nothing.
#include "train/model/gpt_memory.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "train/model/gpt_block.hpp"
#include "train/model/gpt_head.hpp"

namespace sprat::train {
namespace {

using Where = ActivationPlace::Where;

/// Blocks inside of a checkpoint leave nothing but the checkpoint's input, which is its first's.
bool has_tape(const LayerPass& pass, const LayerRange& checkpoint) {
  return checkpoint.end == 0 || pass.layer == checkpoint.first;
}

class Rehearsal {
 public:
  Rehearsal(const GptShape& shape, const GptPlan& plan, int rows, int microbatches)
      : shape_(shape), plan_(plan), most_(most_extents(shape, plan.placement, rows)) {
    result_.microbatches = microbatches;
    const std::size_t count = static_cast<std::size_t>(gpt_layer_count(shape) * microbatches);
    result_.places.resize(count);
    tapes_.resize(count, no_tape);
  }

  void play(const LayerPass& pass, int task) {
    step_ = static_cast<int>(result_.program.steps.size());
    const bool makes = pass.pass == PassKind::forward;
    result_.program.steps.push_back(
        {.pass = makes ? TapePass::forward : TapePass::backward, .tape = no_tape, .task = task});
    if (is_block(shape_, pass.layer)) {
      play_block(pass);
    } else if (pass.layer == head_layer(shape_)) {
      touch(places(pass).tape, head_tape_count(most_), "head", pass);
    }
    if (pass.pass == PassKind::backward_input || pass.pass == PassKind::backward_weight) {
      touch(places(pass).gradients, gradients_count(pass.layer), "gradients", pass);
    }
  }
  GptMemoryPlan finish() { return std::move(result_); }

 private:
  void play_block(const LayerPass& pass) {
    const LayerRange checkpoint = checkpoint_of(shape_, plan_, pass.layer);
    if (has_tape(pass, checkpoint)) {
      result_.program.steps.back().tape = tape_of(pass, checkpoint.end == 0);
    }
    if (checkpoint.end == 0 || pass.pass == PassKind::forward) {
      return;  // the tape is all, or what the forward makes goes by
    }
    touch(places(pass).tape, block_tape_count(most_), "recomputed", pass);
    LayerPass input = pass;
    // What is made again is written where the next block finds it.
    input.layer += pass.pass == PassKind::recompute ? 1 : 0;
    if (input.layer > checkpoint.first && input.layer < checkpoint.end) {
      touch(places(input).input, stream_count(), "recomputed input", input);
    }
  }

  /// The tape of a block and micro-batch, made when it is first asked for.
  int tape_of(const LayerPass& pass, bool whole) {
    int& tape = tapes_[index(pass)];
    if (tape != no_tape) {
      return tape;
    }
    ActivationProgram& program = result_.program;
    tape = static_cast<int>(program.tapes.size());
    program.tapes.push_back({.layer = pass.layer, .microbatch = pass.microbatch, .storages = {}});
    const auto add = [&](ActivationPlace& place, std::size_t count) {
      place = {.where = Where::tape, .number = static_cast<int>(program.storage_bytes.size())};
      program.tapes.back().storages.push_back(place.number);
      program.storage_bytes.push_back(count * sizeof(float));
    };
    // Two storages: what a checkpoint keeps is the first of what a block keeps.
    add(places(pass).input, stream_count());
    if (whole) {
      add(places(pass).tape, block_tape_count(most_));
    }
    return tape;
  }

  /// The step needs it, too.
  void touch(ActivationPlace& place, std::size_t count, std::string_view what,
             const LayerPass& of) {
    auto& kept = result_.program.kept;
    if (place.where == Where::nowhere) {
      place = {.where = Where::kept, .number = static_cast<int>(kept.size())};
      kept.push_back(
          {.name = fmt::format("{} of layer {}, micro-batch {}", what, of.layer, of.microbatch),
           .bytes = count * sizeof(float),
           .first = step_,
           .last = step_});
    }
    kept[static_cast<std::size_t>(place.number)].last = step_;
  }

  std::size_t stream_count() const {
    return static_cast<std::size_t>(most_.own_rows) * static_cast<std::size_t>(shape_.width);
  }
  std::size_t gradients_count(int layer) const {
    return is_block(shape_, layer) ? split_block_gradients_count(most_) : stream_count();
  }
  std::size_t index(const LayerPass& of) const {
    return static_cast<std::size_t>(of.layer * result_.microbatches + of.microbatch);
  }
  LayerPlaces& places(const LayerPass& of) { return result_.places[index(of)]; }

  const GptShape& shape_;
  const GptPlan& plan_;
  GptExtents most_;
  int step_ = 0;
  std::vector<int> tapes_;  // as places
  GptMemoryPlan result_;
};

}  // namespace

std::size_t split_block_gradients_count(const GptExtents& extents) {
  return block_gradients_count(extents) +
         static_cast<std::size_t>(extents.own_rows) * static_cast<std::size_t>(extents.width);
}

GptMemoryPlan plan_gpt_memory(const GptShape& shape, const GptPlan& plan,
                              const std::vector<std::vector<LayerPass>>& passes, int rows) {
  int microbatches = 0;
  for (const mp::Action& action : plan.actions) {
    microbatches = std::max(microbatches, action.microbatch + 1);
  }
  Rehearsal rehearsal(shape, plan, rows, microbatches);
  int task = 0;
  for (const std::vector<LayerPass>& action : passes) {
    for (const LayerPass& pass : action) {
      rehearsal.play(pass, task);
    }
    ++task;
  }
  return rehearsal.finish();
}

}  // namespace sprat::train
