// The training loop: batches through the model, gradients through the sharded step, and what to
// tell.
#include "train/train.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <string_view>

#include "sprat/fsdp.hpp"
#include "sprat/mp.hpp"
#include "train/batches.hpp"
#include "train/config.hpp"
#include "train/gpt.hpp"
#include "train/report.hpp"
#include "train/sample.hpp"

namespace sprat::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int plot_columns = 64, plot_rows = 14;
constexpr int all_samples = std::numeric_limits<int>::max();

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// Rank 0's choice, opened by all: equal bits need equal kernels.
std::shared_ptr<const GemmBackend> agree_on_gemm(Communicator& world) {
  std::array<std::uint8_t, 64> name{};
  if (world.rank() == 0) {
    const std::string choice = choose_gemm_backend();
    std::copy_n(choice.begin(), std::min(choice.size(), name.size() - 1), name.begin());
  }
  world.broadcast(elements(name), 0).wait();
  return open_gemm_backend(std::string(name.begin(), std::find(name.begin(), name.end(), 0)));
}

FsdpOptions sharding(const TrainConfig& config) {
  return {.hybrid_shard_degree = config.parallel.hybrid_shard_degree,
          .forward = gpt_forward_order(config.model),
          .backward = gpt_backward_order(config.model),
          .prefetch_units = config.parallel.prefetch_units,
          .optimizer = {.name = "adamw",
                        .values = {{"beta1", config.train.beta1},
                                   {"beta2", config.train.beta2},
                                   {"weight_decay", config.train.weight_decay}}},
          .clip_norm = static_cast<float>(config.train.clip_norm)};
}

/// One rank's part of a run.
class Trainer {
 public:
  Trainer(Communicator& world, const TrainConfig& config, int steps,
          const std::optional<std::string>& report)
      : world_(world),
        config_(config),
        steps_(steps),
        batches_(read_text(config.data.files), config),
        gemm_(agree_on_gemm(world)),
        model_(world, gpt_units(config.model, config.train.seed), sharding(config)),
        parameters_(model_),
        gpt_(config.model, config.train.batch / world.size(), gemm_) {
    if (report && leads()) {
      report_.emplace(*report);
    }
  }

  void run();

 private:
  bool leads() const { return world_.rank() == 0; }
  BatchShare share() const { return {world_.rank(), world_.size()}; }
  template <class... Args>
  void say(fmt::format_string<Args...> message, Args&&... args) const {
    if (leads()) {
      fmt::print(message, std::forward<Args>(args)...);
      std::fflush(stdout);
    }
  }
  /// The sum over ranks, in canonical order; the same on all.
  double total(double mine) {
    world_
        .all_reduce(elements(std::span(&mine, 1)), ReduceOp::sum, {.timeout = {}, .blocking = true})
        .wait();
    return mine;
  }
  void introduce() const;
  StepRecord train_step(int step);
  double validate(int samples);
  void finish(const std::vector<StepRecord>& records);
  void advise() const;

  Communicator& world_;
  const TrainConfig& config_;
  int steps_;
  Batches batches_;
  std::shared_ptr<const GemmBackend> gemm_;
  ShardedModel model_;
  ShardedParameters parameters_;
  Gpt gpt_;
  std::optional<ReportFile> report_;
};

void Trainer::introduce() const {
  const GptShape& shape = config_.model;
  say("GPT of {} parameters: {} layers of width {}, {} heads, context {}\n",
      model_.parameter_count(), shape.layers, shape.width, shape.heads, shape.context);
  say("{} bytes to learn, {} held out; {} samples a step\n", batches_.training_text().size(),
      batches_.validation_text().size(), config_.train.batch);
  say("{} ranks, hybrid_shard_degree {} ({}), matrix products by {}\n", world_.size(),
      config_.parallel.hybrid_shard_degree, model_.strategy().name, gemm_->name());
}

StepRecord Trainer::train_step(int step) {
  const auto begin = Clock::now();
  const double waited = world_.seconds_waited();
  const Batch batch = batches_.training(step, share());
  const double loss = gpt_.forward(parameters_, batch.inputs, batch.targets);
  gpt_.backward(parameters_);
  const StepResult result = model_.step(static_cast<float>(learning_rate(config_.train, step)));
  const double tokens = double{1} * config_.train.batch * config_.model.context;
  StepRecord record;
  record.step = step + 1;
  record.loss = total(loss) / tokens;
  record.tokens_per_s = tokens / seconds(Clock::now() - begin);
  record.grad_norm = result.grad_norm;
  record.exposed_comm_ms = 1000 * (world_.seconds_waited() - waited);
  if (result.skipped) {
    say("step {}: the gradient is not finite, so nothing was changed; lower train.learning_rate\n",
        step + 1);
  }
  return record;
}

double Trainer::validate(int samples) {
  samples = batches_.validation_samples(samples);
  double mine = 0;
  for (int index = 0; index < batches_.validation_batches(samples); ++index) {
    const Batch batch = batches_.validation(index, samples, share());
    mine += gpt_.forward(parameters_, batch.inputs, batch.targets);
  }
  return total(mine) / (double{1} * samples * config_.model.context);
}

void Trainer::run() {
  introduce();
  std::vector<StepRecord> records;
  Progress progress(steps_, Clock::now());
  const OptimizationConfig& train = config_.train;
  for (int step = 0; step < steps_; ++step) {
    StepRecord record = train_step(step);
    if (step + 1 == steps_) {
      record.validation_loss = validate(all_samples);
    } else if (train.validate_every > 0 && (step + 1) % train.validate_every == 0) {
      record.validation_loss = validate(train.validation_samples);
    }
    if (const auto line = progress.step(record, Clock::now())) {
      say("{}\n", *line);
    }
    if (report_) {
      report_->write(record);
    }
    records.push_back(record);
  }
  finish(records);
}

void Trainer::finish(const std::vector<StepRecord>& records) {
  say("\n{}\nvalidation loss {:.4f} nats per byte ({:.2f} bits)\n",
      plot_losses(records, plot_columns, plot_rows), *records.back().validation_loss,
      *records.back().validation_loss / 0.6931471805599453);
  if (config_.train.sample_bytes > 0) {
    WholeParameters whole(gpt_units(config_.model, config_.train.seed));
    whole.copy_values(parameters_, gpt_forward_order(config_.model));
    if (leads()) {
      Gpt writer(config_.model, 1, gemm_);
      const std::string sample = write_sample(writer, whole,
                                              {.prompt = config_.train.prompt,
                                               .bytes = config_.train.sample_bytes,
                                               .temperature = config_.train.temperature,
                                               .seed = config_.train.seed,
                                               .context = config_.model.context});
      const WordShare words = known_words(sample, words_of(batches_.training_text()));
      say("\nthe model writes (temperature {}):\n{:-<72}\n{}{}\n{:-<72}\n",
          config_.train.temperature, "", config_.train.prompt, sample, "");
      say("{} of its {} words ({:.0f} %) occur in the training text\n", words.known, words.words,
          100 * words.share());
    }
  }
  advise();
  world_.barrier();  // nobody leaves while rank 0 still writes
}

void Trainer::advise() const {
  const int ranks = world_.size(), degree = config_.parallel.hybrid_shard_degree;
  say("\nwhat to try next:\n");
  say("  parallel.hybrid_shard_degree {}: the same losses to the bit, another share of memory "
      "each\n",
      degree == ranks ? 1 : ranks);
  say("  --virtual-ranks {}: the same ranks as threads of one process, the same losses again\n",
      ranks);
  say("  more train.steps, or a larger model.width: a lower loss for more time\n");
  say("  data.files: your own text; --report FILE: every step's figures as JSON\n");
}

}  // namespace

int run(Communicator& world, const TrainRequest& request) {
  const TrainConfig config = read_train_config(request.config);
  check_ranks(config, world.size());
  const int steps = request.steps.value_or(config.train.steps);
  if (steps < 1) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--steps is {}; it is at least 1", steps));
  }
  Trainer(world, config, steps, request.report).run();
  return 0;
}

}  // namespace sprat::train
