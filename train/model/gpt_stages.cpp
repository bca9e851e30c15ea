// Each action is the list of passes that gpt_passes has for it, and each pass one step of the
// activations' memory: what is computed, used and held follows from one list.
//
// Between layers the residual stream, or its gradient, is in one place in the workspace. A forward
// copies it to where the block's tape begins, since a store may be taking the block before away
// already; a backward changes it in place.
#include "train/model/gpt_stages.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sprat/layers.hpp"
#include "train/check.hpp"
#include "train/model/carver.hpp"
#include "train/model/gpt_head.hpp"

namespace sprat::train {
namespace {

using Where = ActivationPlace::Where;

std::size_t stage_elements(int rows, int width) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
}

GptPlan plan_of(const GptStagesOptions& options) {
  return {.placement = options.placement,
          .checkpoint_blocks = options.checkpoint_blocks,
          .actions = options.actions.empty()
                         ? plain_actions(options.placement, options.microbatches)
                         : options.actions};
}

bool is_last_stage(const GptPlacement& placement, int stage) {
  return stage + 1 == static_cast<int>(placement.first_layer.size());
}

bool rows_are_dealt(const GptPlacement& placement) {
  return placement.tensor.sequence_parallel && placement.tensor.degree > 1;
}

/// Of any layer's pass. The last is what an evaluation's head needs for one row's logits.
std::size_t layer_workspace(const GptShape& shape, const GptPlacement& placement, int rows) {
  const GptExtents most = most_extents(shape, placement, rows);
  const std::size_t gathered = rows_are_dealt(placement) ? stage_elements(rows, shape.width) : 0;
  return std::max({passing_block_gradients_count(most), passing_block_tape_count(most),
                   stage_elements(most.own_rows, shape.width) + gathered +
                       static_cast<std::size_t>(most.vocabulary)});
}

bool has_block(const GptShape& shape, const GptPlacement& placement) {
  return std::ranges::any_of(placement.stages, [&](int stage) {
    const LayerRange range = layers_of_stage(shape, placement, stage);
    return std::max(range.first, block_layer(0)) < std::min(range.end, head_layer(shape));
  });
}

/// Where a rank's positions are in a sequence, in two runs: those of the second are so much later.
struct PositionRuns {
  int first = 0, left_out = 0;
};
PositionRuns positions_of(const GptShape& shape, const GptPlacement& placement) {
  if (placement.context_degree == 1) {
    return {};
  }
  const auto [first, second] =
      context_pieces(shape.context, placement.context_degree, placement.context_rank);
  return {.first = first.first, .left_out = second.first - (first.first + first.count)};
}

/// One for all blocks, since they compute one after another.
std::optional<ContextAttention> context_of(const GptShape& shape, const GptStagesOptions& options) {
  const GptPlacement& placement = options.placement;
  if (options.context_ranks == nullptr || !has_block(shape, placement)) {
    return std::nullopt;
  }
  return ContextAttention(*options.context_ranks,
                          {.sequences = options.max_tokens / placement.own_positions(shape),
                           .length = shape.context,
                           .heads = extents_of(shape, placement, 0).heads,
                           .head_width = shape.width / shape.heads},
                          options.context);
}

}  // namespace

StageWorkspace::StageWorkspace(const GptShape& shape, const GptPlacement& placement, int rows,
                               int sum_pieces)
    : stream(stage_elements(most_extents(shape, placement, rows).own_rows, shape.width)),
      layer(layer_workspace(shape, placement, rows)),
      row_numbers(4 * (static_cast<std::size_t>(rows) + line_floats)),
      attention(attention_workspace(shape)),
      exchange(exchange_workspace(shape, placement, rows)),
      row_sums(row_sums_workspace(shape, placement, rows, sum_pieces)),
      partial_gradients(partial_gradients_workspace(shape, placement)),
      losses(static_cast<std::size_t>(rows)) {}

std::size_t StageWorkspace::bytes() const {
  std::size_t floats = 0;
  for (const Floats* part :
       {&stream, &layer, &row_numbers, &attention, &exchange, &row_sums, &partial_gradients}) {
    floats += part->size();
  }
  return floats * sizeof(float) + losses.size() * sizeof(double);
}

GptStages::GptStages(const GptShape& shape, GptStagesOptions options,
                     std::shared_ptr<const GemmBackend> gemm, Parameters& parameters)
    : shape_(shape),
      options_(std::move(options)),
      gemm_(std::move(gemm)),
      parameters_(parameters),
      plan_(plan_of(options_)),
      own_(own_units(shape, plan_.placement)),
      passes_(layer_passes(shape, plan_)),
      memory_plan_(plan_gpt_memory(shape, plan_, passes_, options_.max_tokens)),
      context_(context_of(shape, options_)),
      memory_(memory_plan_.program, options_.activations),
      workspace_(shape, plan_.placement, options_.max_tokens, gemm_->sum_pieces()) {
  const GptPlacement& placement = plan_.placement;
  check(group().how().degree == placement.tensor.degree && group().rank() == placement.tensor_rank,
        "stages of tensor rank {} of {} are given a group in which it is {} of {}",
        placement.tensor_rank, placement.tensor.degree, group().rank(), group().how().degree);
  const Communicator* const context = options_.context_ranks;
  const int degree = context == nullptr ? 1 : context->size();
  const int rank = context == nullptr ? 0 : context->rank();
  check(degree == placement.context_degree && rank == placement.context_rank,
        "stages of context rank {} of {} are given ranks among which it is {} of {}",
        placement.context_rank, placement.context_degree, rank, degree);
  check(memory_plan_.microbatches <= options_.microbatches,
        "actions name micro-batch {}, and a step has {}", memory_plan_.microbatches - 1,
        options_.microbatches);
}

void GptStages::begin_step(std::span<const MicroBatch> microbatches, float loss_scale) {
  check(static_cast<int>(microbatches.size()) == options_.microbatches,
        "a step has {} micro-batches, not {}", options_.microbatches, microbatches.size());
  take(microbatches);
  evaluating_ = false;
  loss_scale_ = loss_scale;
}

void GptStages::begin_evaluation(std::span<const MicroBatch> microbatches) {
  check(static_cast<int>(microbatches.size()) <= options_.microbatches,
        "an evaluation has at most {} micro-batches at a time, not {}", options_.microbatches,
        microbatches.size());
  take(microbatches);
  evaluating_ = true;
}

void GptStages::take(std::span<const MicroBatch> microbatches) {
  // What an earlier step left half done is dropped here, not where it failed: a stage that throws
  // may still be asked what it holds.
  memory_.restart();
  next_action_ = 0;
  losses_.assign(microbatches.size(), 0.0);
  taken_.resize(static_cast<std::size_t>(options_.microbatches));
  for (std::size_t number = 0; number < microbatches.size(); ++number) {
    const MicroBatch& one = microbatches[number];
    check_microbatch(one, number);
    TakenBatch& taken = taken_[number];
    taken.rows = -1;
    taken.length = std::max(one.length, 1);
    taken.tokens.assign(one.tokens.begin(), one.tokens.end());
    taken.targets.assign(one.targets.begin(), one.targets.end());
    taken.sequence_losses.clear();
  }
}

void GptStages::check_microbatch(const MicroBatch& microbatch, std::size_t number) const {
  const std::size_t count = std::max(microbatch.tokens.size(), microbatch.targets.size());
  const auto length = static_cast<std::size_t>(std::max(microbatch.length, 1));
  check(microbatch.length <= shape_.context,
        "micro-batch {} has sequences of {} tokens; the model's context is {}", number,
        microbatch.length, shape_.context);
  const int degree = plan_.placement.context_degree;
  check(degree == 1 || microbatch.length == plan_.placement.own_positions(shape_),
        "micro-batch {} has {} tokens of each sequence; of {} that {} ranks share it is {}", number,
        microbatch.length, shape_.context, degree, plan_.placement.own_positions(shape_));
  check(std::cmp_less_equal(count, options_.max_tokens),
        "micro-batch {} has {} tokens; memory is for {}", number, count, options_.max_tokens);
  check(count % length == 0, "micro-batch {} has {} tokens, which are no sequences of {}", number,
        count, length);
}

std::size_t GptStages::most_elements(int stage) const {
  const GptExtents most = most_extents(shape_, plan_.placement, options_.max_tokens);
  return is_last_stage(plan_.placement, stage) ? 0 : stage_elements(most.own_rows, shape_.width);
}

const std::vector<LayerPass>& GptStages::begin_action(const mp::Action& action) {
  check(!evaluating_ && next_action_ < passes_.size() && plan_.actions[next_action_] == action,
        "{} is not action {} of a step; memory is planned for actions in one order, from "
        "begin_step() on",
        to_text(action), next_action_);
  return passes_[next_action_++];
}

/// What a micro-batch has of rows, on a stage that is told by its input alone, if that is whole.
void GptStages::set_rows(int stage, int microbatch, std::span<const float> input) {
  check(microbatch >= 0 && std::cmp_less(microbatch, losses_.size()),
        "there is no micro-batch {}; the step or evaluation has {}", microbatch, losses_.size());
  TakenBatch& taken = at(microbatch);
  const auto width = static_cast<std::size_t>(shape_.width);
  const bool dealt = rows_are_dealt(plan_.placement);
  const std::size_t told = std::max(taken.tokens.size(), taken.targets.size());
  const std::size_t rows = stage == 0 ? taken.tokens.size() : dealt ? told : input.size() / width;
  const GptExtents here = extents_of(shape_, plan_.placement, static_cast<int>(rows));
  check(std::cmp_less_equal(rows, options_.max_tokens) &&
            (stage == 0 || input.size() == stage_elements(here.own_rows, shape_.width)) &&
            rows % static_cast<std::size_t>(taken.length) == 0,
        "micro-batch {} comes to stage {} with {} elements, which are no sequences of {} tokens "
        "of width {}, {} tokens at most",
        microbatch, stage, input.size(), taken.length, shape_.width, options_.max_tokens);
  check(!is_last_stage(plan_.placement, stage) || taken.targets.size() == rows,
        "micro-batch {} has {} tokens and {} targets; the last stage needs one for each",
        microbatch, rows, taken.targets.size());
  taken.rows = static_cast<int>(rows);
}

GptExtents GptStages::extents(int microbatch) {
  return extents_of(shape_, plan_.placement, at(microbatch).rows);
}

GptRows GptStages::run_of(int microbatch) {
  const PositionRuns positions = positions_of(shape_, plan_.placement);
  return {.shape = shape_,
          .gemm = *gemm_,
          .group = group(),
          .context = context_ ? &*context_ : nullptr,
          .extents = extents(microbatch),
          .length = at(microbatch).length,
          .first_position = positions.first,
          .left_out = positions.left_out,
          .workspaces = {.attention = workspace_.attention,
                         .exchange = workspace_.exchange,
                         .row_sums = workspace_.row_sums,
                         .partial_gradients = workspace_.partial_gradients}};
}

float* GptStages::floats(const ActivationPlace& place) {
  const std::span<std::byte> bytes =
      place.where == Where::tape ? memory_.storage(place.number) : memory_.kept(place.number);
  return reinterpret_cast<float*>(bytes.data());
}

/// Calls compute(unit's place among the rank's own) while its values are there.
template <class Compute>
void GptStages::use_unit(int unit, const Compute& compute) {
  const int own = own_[static_cast<std::size_t>(unit)];
  parameters_.acquire(own);
  compute(own);
  parameters_.release(own);
}

/// The same, where the micro-batch's gradients of the unit are whole behind it.
template <class Compute>
void GptStages::add_gradients(const LayerPass& pass, int unit, const Compute& compute) {
  use_unit(unit, [&](int own) {
    compute(own);
    parameters_.reduce(own, pass.microbatch);
  });
}

std::size_t GptStages::forward(int stage, int microbatch, std::span<const float> input,
                               std::span<float> output) {
  // An evaluation keeps nothing, so any order of its forwards is as good as another.
  if (!evaluating_) {
    begin_action({.op = mp::Op::forward, .stage = stage, .microbatch = microbatch});
  }
  set_rows(stage, microbatch, input);
  const bool last = is_last_stage(plan_.placement, stage);
  const std::size_t count = last ? 0 : stage_elements(extents(microbatch).own_rows, shape_.width);
  check(output.size() >= count, "stage {} writes {} elements, and there is room for {}", stage,
        count, output.size());
  const LayerRange range = layers_of_stage(shape_, plan_.placement, stage);
  const float* x = input.data();
  for (int layer = range.first; layer < range.end; ++layer) {
    float* y = layer + 1 == range.end ? output.data() : workspace_.stream.data();
    if (evaluating_) {
      evaluate_layer(layer, microbatch, x, y);
    } else {
      memory_.begin_step();
      forward_layer({PassKind::forward, layer, microbatch}, x, y);
      memory_.end_step();
    }
    x = y;
  }
  return count;
}

void GptStages::backward(int stage, int microbatch, std::span<const float> output_gradient,
                         std::span<float> input_gradient) {
  backward_layers({.op = mp::Op::backward, .stage = stage, .microbatch = microbatch},
                  output_gradient, input_gradient);
}

void GptStages::backward_input(int stage, int microbatch, std::span<const float> output_gradient,
                               std::span<float> input_gradient) {
  backward_layers({.op = mp::Op::backward_input, .stage = stage, .microbatch = microbatch},
                  output_gradient, input_gradient);
}

void GptStages::backward_weight(int stage, int microbatch) {
  for (const LayerPass& pass :
       begin_action({.op = mp::Op::backward_weight, .stage = stage, .microbatch = microbatch})) {
    memory_.begin_step();
    backward_layer(pass);
    memory_.end_step();
  }
}

void GptStages::recompute(int stage, int microbatch) {
  for (const LayerPass& pass :
       begin_action({.op = mp::Op::recompute, .stage = stage, .microbatch = microbatch})) {
    memory_.begin_step();
    recompute_block(pass);
    memory_.end_step();
  }
}

void GptStages::backward_layers(const mp::Action& action, std::span<const float> output_gradient,
                                std::span<float> input_gradient) {
  const std::vector<LayerPass>& passes = begin_action(action);
  const std::size_t count = stage_elements(extents(action.microbatch).own_rows, shape_.width);
  const bool last = is_last_stage(plan_.placement, action.stage);
  check((last || output_gradient.size() == count) &&
            (action.stage == 0 || input_gradient.size() == count),
        "the backward of stage {} and micro-batch {} takes gradients of {} elements, not {} and "
        "{}",
        action.stage, action.microbatch, count, output_gradient.size(), input_gradient.size());
  float* const stream = workspace_.stream.data();
  std::copy(output_gradient.begin(), output_gradient.end(), stream);
  for (const LayerPass& pass : passes) {
    memory_.begin_step();
    pass.pass == PassKind::recompute ? recompute_block(pass) : backward_layer(pass);
    memory_.end_step();
  }
  if (action.stage > 0) {
    std::copy_n(stream, count, input_gradient.data());
  }
}

void GptStages::forward_layer(const LayerPass& pass, const float* x, float* y) {
  if (pass.layer == embedding_layer) {
    embed(run_of(pass.microbatch), at(pass.microbatch).tokens, y);
  } else if (pass.layer == head_layer(shape_)) {
    forward_head(pass, x);
  } else {
    forward_block(pass, x, y);
  }
}

void GptStages::embed(const GptRows& run, std::span<const std::int32_t> tokens, float* y) {
  use_unit(table_unit, [&](int own) {
    embedding_forward_tokens(run, {parameters_, own}, tokens, y);
  });
  use_unit(position_unit, [&](int own) {
    embedding_forward_positions(run, {parameters_, own}, y);
  });
}

void GptStages::forward_block(const LayerPass& pass, const float* x, float* y) {
  const GptRows run = run_of(pass.microbatch);
  const LayerPlaces& places = memory_plan_.at(pass.layer, pass.microbatch);
  if (places.input.where == Where::tape) {
    float* const input = floats(places.input);
    std::copy_n(x, stage_elements(run.extents.own_rows, shape_.width), input);
    x = input;
  }
  // A checkpoint makes the rest again. Its inner blocks' inputs are in no tape, either.
  if (places.tape.where != Where::tape) {
    pass_block(run, pass.layer, x, y);
    return;
  }
  const BlockTape tape = block_tape(run.extents, floats(places.tape));
  use_unit(block_unit(block_of(pass.layer)), [&](int own) {
    block_forward_tape(run, {parameters_, own}, x, tape);
    block_forward_output(run, {parameters_, own}, tape, y);
  });
}

void GptStages::pass_block(const GptRows& run, int layer, const float* x, float* y) {
  const BlockTape tape = passing_block_tape(run.extents, workspace_.layer.data());
  use_unit(block_unit(block_of(layer)), [&](int own) {
    block_forward_tape(run, {parameters_, own}, x, tape);
    block_forward_output(run, {parameters_, own}, tape, y);
  });
}

void GptStages::forward_head(const LayerPass& pass, const float* x) {
  const GptRows run = run_of(pass.microbatch);
  float* const memory = floats(memory_plan_.at(pass.layer, pass.microbatch).tape);
  const HeadTape tape = head_tape(run.extents, memory);
  std::copy_n(x, stage_elements(run.extents.own_rows, shape_.width), memory);
  use_unit(norm_unit(shape_), [&](int own) { head_forward_norm(run, {parameters_, own}, tape); });
  use_unit(head_unit(shape_), [&](int own) { head_forward_logits(run, {parameters_, own}, tape); });
  losses_[static_cast<std::size_t>(pass.microbatch)] =
      head_forward_loss(run, at(pass.microbatch).targets, tape, workspace_.losses);
}

/// A forward whose memory is the workspace alone.
void GptStages::evaluate_layer(int layer, int microbatch, const float* x, float* y) {
  if (layer == embedding_layer) {
    embed(run_of(microbatch), at(microbatch).tokens, y);
  } else if (layer == head_layer(shape_)) {
    evaluate_head(microbatch, x);
  } else {
    pass_block(run_of(microbatch), layer, x, y);
  }
}

/// All rows of what this rank has its own of.
const float* GptStages::all_rows(const GptRows& run, const float* own, float* whole) {
  if (!rows_are_dealt(plan_.placement)) {
    return own;
  }
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < run.group.how().degree; ++rank) {
    const int rows = tensor::part_of(run.extents.rows, run.group.how().degree, rank).count;
    counts.push_back(stage_elements(rows, shape_.width));
  }
  run.group.gather(own, {whole, stage_elements(run.extents.rows, shape_.width)}, counts).wait();
  return whole;
}

/// In pieces of as many rows as have room for their logits.
void GptStages::evaluate_head(int microbatch, const float* x) {
  const GptRows run = run_of(microbatch);
  const std::span<const std::int32_t> targets = at(microbatch).targets;
  Carver carver(workspace_.row_numbers.data());
  HeadTape tape{.x = x, .normed = workspace_.layer.data()};
  for (float** const numbers : {&tape.mean, &tape.reciprocal, &tape.highest, &tape.share}) {
    *numbers = carver.take(static_cast<std::size_t>(run.extents.rows));
  }
  use_unit(norm_unit(shape_), [&](int own) { head_forward_norm(run, {parameters_, own}, tape); });
  use_unit(head_unit(shape_), [&](int own) {
    // As many rows at a time on every tensor rank, for they add up their parts of the vocabulary.
    const GptExtents here = most_extents(shape_, plan_.placement, run.extents.rows);
    auto room = std::span(workspace_.layer).subspan(stage_elements(here.own_rows, shape_.width));
    const float* const normed = all_rows(run, tape.normed, room.data());
    if (normed == room.data()) {
      room = room.subspan(stage_elements(run.extents.rows, shape_.width));
    }
    const int most = static_cast<int>(room.size() / static_cast<std::size_t>(here.vocabulary));
    const std::span<double> losses = workspace_.losses;
    for (int first = 0; first < run.extents.rows; first += most) {
      GptRows piece = run;
      piece.extents.rows = std::min(most, run.extents.rows - first);
      const HeadTape part{.logits = room.data(), .highest = tape.highest, .share = tape.share};
      head_forward_logits_of(piece, {parameters_, own},
                             normed + stage_elements(first, shape_.width), part.logits);
      head_forward_loss(piece,
                        targets.subspan(static_cast<std::size_t>(first),
                                        static_cast<std::size_t>(piece.extents.rows)),
                        part, losses.subspan(static_cast<std::size_t>(first)));
    }
    tell_losses(microbatch, losses.first(targets.size()));
  });
}

/// Of an evaluation, from those of all rows.
void GptStages::tell_losses(int microbatch, std::span<const double> rows) {
  losses_[static_cast<std::size_t>(microbatch)] = std::accumulate(rows.begin(), rows.end(), 0.0);
  TakenBatch& taken = at(microbatch);
  const auto length = static_cast<std::size_t>(taken.length);
  for (; !rows.empty(); rows = rows.subspan(length)) {
    const auto sequence = rows.first(length);
    taken.sequence_losses.push_back(std::accumulate(sequence.begin(), sequence.end(), 0.0));
  }
}

/// Of the last row alone: the others' logits are nobody's.
std::span<const float> GptStages::predict(std::span<const std::int32_t> tokens) {
  check(std::ranges::count(own_, -1) == 0 && plan_.placement.tensor.degree == 1 &&
            plan_.placement.context_degree == 1,
        "a prediction needs all layers on one rank, all of each, and whole sequences");
  check(!tokens.empty(), "a prediction needs a token to follow");
  begin_evaluation(std::vector<MicroBatch>{
      {.length = static_cast<int>(tokens.size()), .tokens = tokens, .targets = {}}});
  at(0).rows = static_cast<int>(tokens.size());
  float* const stream = workspace_.stream.data();
  for (int layer = embedding_layer; layer < head_layer(shape_); ++layer) {
    evaluate_layer(layer, 0, stream, stream);
  }
  GptRows last = run_of(0);
  last.extents.rows = last.extents.own_rows = 1;
  const HeadTape tape{
      .x = stream + stage_elements(static_cast<int>(tokens.size()) - 1, shape_.width),
      .mean = workspace_.row_numbers.data(),
      .reciprocal = workspace_.row_numbers.data() + 1,
      .normed = workspace_.layer.data(),
      .logits = workspace_.layer.data() + stage_elements(1, shape_.width)};
  use_unit(norm_unit(shape_), [&](int own) { head_forward_norm(last, {parameters_, own}, tape); });
  use_unit(head_unit(shape_), [&](int own) {
    head_forward_logits(last, {parameters_, own}, tape);
  });
  return {tape.logits, static_cast<std::size_t>(shape_.vocabulary)};
}

void GptStages::recompute_block(const LayerPass& pass) {
  const GptRows run = run_of(pass.microbatch);
  const LayerPlaces& places = memory_plan_.at(pass.layer, pass.microbatch);
  const BlockTape tape = block_tape(run.extents, floats(places.tape));
  // The checkpoint's own output is the next one's input, which was kept.
  const bool last = pass.layer + 1 == checkpoint_of(shape_, plan_, pass.layer).end;
  use_unit(block_unit(block_of(pass.layer)), [&](int own) {
    block_forward_tape(run, {parameters_, own}, floats(places.input), tape);
    if (!last) {
      block_forward_output(run, {parameters_, own}, tape,
                           floats(memory_plan_.at(pass.layer + 1, pass.microbatch).input));
    }
  });
}

void GptStages::backward_layer(const LayerPass& pass) {
  if (pass.layer == embedding_layer) {
    backward_embedding(pass);
  } else if (pass.layer == head_layer(shape_)) {
    backward_head(pass);
  } else if (pass.pass == PassKind::backward) {
    backward_block(pass);
  } else {
    backward_block_half(pass);
  }
}

void GptStages::backward_embedding(const LayerPass& pass) {
  const GptRows run = run_of(pass.microbatch);
  const LayerPlaces& places = memory_plan_.at(pass.layer, pass.microbatch);
  const float* dy = workspace_.stream.data();
  if (pass.pass == PassKind::backward_input) {
    // Tokens have no gradient: this half only keeps what the other one adds up.
    std::copy_n(dy, stage_elements(run.extents.own_rows, shape_.width), floats(places.gradients));
    return;
  }
  if (pass.pass == PassKind::backward_weight) {
    dy = floats(places.gradients);
  }
  add_gradients(pass, position_unit, [&](int own) {
    embedding_backward_positions(run, {parameters_, own, pass.microbatch}, dy);
  });
  add_gradients(pass, table_unit, [&](int own) {
    embedding_backward_tokens(run, {parameters_, own, pass.microbatch}, at(pass.microbatch).tokens,
                              dy);
  });
}

void GptStages::backward_block(const LayerPass& pass) {
  const GptRows run = run_of(pass.microbatch);
  const LayerPlaces& places = memory_plan_.at(pass.layer, pass.microbatch);
  const BlockTape tape = block_tape(run.extents, floats(places.tape));
  const BlockGradients gradients = passing_block_gradients(run.extents, workspace_.layer.data());
  add_gradients(pass, block_unit(block_of(pass.layer)), [&](int own) {
    block_backward({.run = run, .x = floats(places.input), .tape = tape, .gradients = gradients},
                   {parameters_, own}, {parameters_, own, pass.microbatch},
                   workspace_.stream.data());
  });
}

/// The weights' half acquires the unit for its gradients' sake, and reads no values: none are
/// there.
void GptStages::backward_block_half(const LayerPass& pass) {
  const GptRows run = run_of(pass.microbatch);
  const LayerPlaces& places = memory_plan_.at(pass.layer, pass.microbatch);
  float* const stream = workspace_.stream.data();
  float* const memory = floats(places.gradients);
  float* const output = memory + block_gradients_count(run.extents);
  BlockGradients gradients = block_gradients(run.extents, memory);
  gradients.output = output;
  const BlockTape tape = block_tape(run.extents, floats(places.tape));
  const BlockBackward block{
      .run = run, .x = floats(places.input), .tape = tape, .gradients = gradients};
  const int unit = block_unit(block_of(pass.layer));
  if (pass.pass == PassKind::backward_weight) {
    add_gradients(pass, unit, [&](int own) {
      block_backward_weight(block, {parameters_, own, pass.microbatch});
    });
    return;
  }
  std::copy_n(stream, stage_elements(run.extents.own_rows, shape_.width), output);
  use_unit(unit, [&](int own) { block_backward_input(block, {parameters_, own}, stream); });
}

void GptStages::backward_head(const LayerPass& pass) {
  const GptRows run = run_of(pass.microbatch);
  const LayerPlaces& places = memory_plan_.at(pass.layer, pass.microbatch);
  const HeadTape tape = head_tape(run.extents, floats(places.tape));
  const bool whole = pass.pass == PassKind::backward;
  float* const dnormed = whole ? workspace_.layer.data() : floats(places.gradients);
  const auto logits_and_weight = [&](int own) {
    head_backward_logits_and_weight(run, {parameters_, own}, {parameters_, own, pass.microbatch},
                                    at(pass.microbatch).targets, loss_scale_, tape, dnormed);
  };
  const auto logits = [&](int own) {
    head_backward_logits(run, {parameters_, own}, at(pass.microbatch).targets, loss_scale_, tape,
                         dnormed);
  };
  const auto logits_weight = [&](int own) {
    head_backward_logits_weight(run, {parameters_, own, pass.microbatch}, tape);
  };
  const auto norm = [&](int own) {
    head_backward_norm(run, {parameters_, own}, tape, dnormed, workspace_.stream.data());
  };
  const auto norm_weight = [&](int own) {
    head_backward_norm_weight(run, {parameters_, own, pass.microbatch}, tape, dnormed);
  };
  if (whole) {
    // Each unit is used once: its input's gradient and its weights' before the next unit.
    add_gradients(pass, head_unit(shape_), logits_and_weight);
    add_gradients(pass, norm_unit(shape_), [&](int own) {
      norm(own);
      norm_weight(own);
    });
  } else if (pass.pass == PassKind::backward_input) {
    use_unit(head_unit(shape_), logits);
    use_unit(norm_unit(shape_), norm);
  } else {
    add_gradients(pass, head_unit(shape_), logits_weight);
    add_gradients(pass, norm_unit(shape_), norm_weight);
  }
}

/// Ends a step that is under way: what it has loaded is of another horizon.
void GptStages::set_horizon(int horizon) {
  memory_.restart();
  memory_.set_horizon(horizon);
}

std::size_t GptStages::bytes_planned() const { return memory_.bytes_planned() + fixed_bytes(); }
std::size_t GptStages::bytes_high_water() const {
  return memory_.bytes_high_water() + fixed_bytes();
}

}  // namespace sprat::train
