// The trainer's step over the engine, and a queue whose collectives can be left out.
#include "bench/fsdp/training.hpp"

#include <algorithm>
#include <utility>

#include "train/schedule.hpp"

namespace sprat::bench {
namespace {

/// Starts collectives, or forgets them while `silent`.
class SilentQueue final : public fsdp::Queue {
 public:
  explicit SilentQueue(const bool& silent)
      : silent_(silent), started_(fsdp::inline_queue().make()) {}
  fsdp::Pending submit(std::function<Work()> start) override {
    return silent_ ? fsdp::Pending() : started_->submit(std::move(start));
  }

 private:
  const bool& silent_;
  std::unique_ptr<fsdp::Queue> started_;
};

DType dtype_named(const std::string& word) {
  for (const DType dtype : all_dtypes()) {
    if (word == name(dtype)) {
      return dtype;
    }
  }
  throw Error(ErrorCode::invalid_argument, "there is no dtype \"" + word + "\"");
}

FsdpOptions sharding(const train::TrainConfig& config, const Way& way) {
  FsdpOptions options = config.sharding;
  options.strategy = way.strategy;
  options.hybrid_shard_degree = way.hybrid_shard_degree;
  options.prefetch_units = way.prefetch_units;
  options.reductions_in_flight = way.reductions_in_flight;
  options.micro_steps = way.micro_steps;
  options.visits = gpt_visits(config.model, {.actions = train::plain_actions({}, way.micro_steps)});
  options.gradient_order = way.tree ? GradientOrder::tree : GradientOrder::sequence;
  options.gradient_wire = dtype_named(way.gradient_wire);
  if (way.parameter_wire != "f32") {
    options.parameter_wire = dtype_named(way.parameter_wire);
  }
  options.error_feedback = way.error_feedback;
  options.state_tier = way.state_tier;
  options.shard_tier = way.shard_tier;
  options.accumulate = way.local ? Accumulate::local : Accumulate::two_hop;
  return options;
}

}  // namespace

std::span<const float> EngineParameters::values(int unit, int index) const {
  const ConstElements values = engine_.parameter(unit, index);
  return {static_cast<const float*>(values.data), values.count};
}

std::span<float> EngineParameters::gradients(int unit, int index, int) {
  const GradientTarget target = engine_.gradient_target(unit, index);
  if (target.fresh) {
    std::ranges::fill(target.values, 0.0f);
  }
  return target.values;
}

Training::Training(Communicator& world, const train::TrainConfig& config, const Way& way,
                   const std::shared_ptr<const GemmBackend>& gemm)
    : world_(world),
      config_(config),
      way_(way),
      batches_(train::TokenizedText(read_text(config.data.files)), config),
      engine_(world, gpt_units(config.model, config.sharding.seed), sharding(config, way),
              {.make = [this] { return std::make_unique<SilentQueue>(silent_); }}),
      parameters_(engine_),
      gpt_(config.model, {.max_tokens = config.train.batch / world.size() * config.model.context},
           gemm, parameters_),
      held_(engine_.held()) {
  if (!way_.save.empty()) {
    saver_.emplace(
        world, held_,
        fsdp::SaverOptions{.folder = way_.save, .asynchronous = way_.asynchronous, .hook = {}});
  }
}

void Training::begin_save() {
  if (saver_) {
    saver_->save({.step = step_,
                  .samples = 0,
                  .counters = engine_.counters(),
                  .notes = {},
                  .config = {},
                  .contents = {}});
  }
}

void Training::end_save() {
  if (saver_) {
    saver_->wait();
  }
}

double Training::step() {
  double loss = 0;
  for (int micro = 0; micro < way_.micro_steps; ++micro) {
    const std::int64_t before = std::int64_t{step_} * way_.micro_steps + micro;
    const auto batch =
        batches_.training(before * config_.train.batch, 0, {world_.rank(), world_.size()});
    const train::MicroBatch microbatch{
        .length = config_.model.context, .tokens = batch.inputs, .targets = batch.targets};
    gpt_.begin_step(std::span(&microbatch, 1));
    gpt_.forward(0, 0, {}, {});
    gpt_.backward(0, 0, {}, {});
    loss += gpt_.losses()[0];
  }
  const double tokens = 1.0 * way_.micro_steps * config_.train.batch * config_.model.context;
  engine_.step(static_cast<float>(train::learning_rate(config_.train, step_)), tokens);
  if (!silent_) {
    world_
        .all_reduce(elements(std::span(&loss, 1)), ReduceOp::sum, {.timeout = {}, .blocking = true})
        .wait();
  }
  ++step_;
  if (saver_) {
    saver_->poll();
  }
  silent_ = way_.nothing;
  return loss / tokens;
}

std::uint64_t Training::bytes_sent() const {
  return engine_.traffic().parameters + engine_.traffic().gradients;
}

}  // namespace sprat::bench
