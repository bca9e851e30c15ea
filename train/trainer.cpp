// The training loop.
#include "train/trainer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <csignal>
#include <limits>
#include <string_view>
#include <utility>

#include "train/sample.hpp"
#include "train/schedule.hpp"

namespace sprat::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int plot_columns = 64, plot_rows = 14;
constexpr int all_samples = std::numeric_limits<int>::max();

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

Gpt make_gpt(const TrainConfig& config, int ranks, std::shared_ptr<const GemmBackend> gemm) {
  const int samples = config.train.batch / (ranks * config.sharding.micro_steps);
  try {
    return {config.model, samples, std::move(gemm)};
  } catch (const std::exception&) {  // of a length, or for want of memory
    throw Error(ErrorCode::unavailable,
                fmt::format("no memory for the activations of {} samples of {} tokens, which each "
                            "rank computes at once; take more train.micro_steps, or a smaller "
                            "train.batch or model.context",
                            samples, config.model.context));
  }
}

/// The kernel that the run so far had, if it is of the kind that the configuration names; else the
/// kind.
std::string kernel_of(const TrainingState& state, const std::string& kind) {
  const auto found = state.notes.find(kernel_note);
  return found != state.notes.end() && found->second.starts_with(kind) ? found->second : kind;
}

}  // namespace

Trainer::Trainer(Communicator& world, const TrainConfig& config, const TrainRequest& request,
                 Batches batches)
    : world_(world),
      config_(config),
      request_(request),
      last_step_(request.steps.value_or(config.train.steps)),
      batches_(std::move(batches)),
      units_(gpt_units(config.model, config.sharding.seed)),
      model_(world, units_, config.sharding),
      checkpoints_(model_, config.checkpoint,
                   [this](const std::string& line) { say("{}\n", line); }),
      resumed_(resume()),
      gemm_(agree_on_gemm_backend(world, kernel_of(resumed_, config.train.gemm))),
      parameters_(model_, units_, config.sharding.parameter_dtype),
      gpt_(make_gpt(config, world.size(), gemm_)),
      step_(static_cast<int>(resumed_.step)),
      samples_(resumed_.samples) {}

void Trainer::introduce() const {
  const GptShape& shape = config_.model;
  const OptimizationConfig& train = config_.train;
  const int micro_steps = config_.sharding.micro_steps;
  say("GPT of {} parameters: {} layers of width {}, {} heads, context {}\n",
      model_.parameter_count(), shape.layers, shape.width, shape.heads, shape.context);
  say("{} bytes to learn, {} held out; {} samples a step", batches_.training_text().size(),
      batches_.validation_text().size(), train.batch);
  say("{}\n", micro_steps == 1 ? "" : fmt::format(" in {} micro-steps", micro_steps));
  say("{} ranks, hybrid_shard_degree {} ({}), matrix products by {}\n", world_.size(),
      model_.hybrid_shard_degree(), model_.strategy().name, gemm_->name());
  for (const std::string& warning :
       batch_warnings(config_, {.ranks = world_.size(),
                               .samples_per_epoch = batches_.samples_per_epoch(),
                               .parameters = model_.parameter_count()})) {
    say("warning: {}\n", warning);
  }
  for (const std::string& warning : resume_warnings(resumed_.notes, state().notes)) {
    say("warning: {}\n", warning);
  }
}

/// Powers of two change no bits, and keep the gradient of so many tokens within a narrow wire's
/// range; step() divides by what is left.
double Trainer::loss_divisor() const {
  return static_cast<double>(std::bit_floor(static_cast<std::uint64_t>(config_.train.batch) *
                                            static_cast<std::uint64_t>(config_.model.context)));
}

Trainer::Totals Trainer::pass() {
  const auto loss_scale = static_cast<float>(model_.loss_scale() / loss_divisor());
  std::vector<double> losses;
  double tokens = 0;
  for (int micro_step = 0; micro_step < config_.sharding.micro_steps; ++micro_step) {
    const Batch batch = batches_.training(samples_, micro_step, share());
    losses.push_back(gpt_.forward(parameters_, batch.inputs, batch.targets, loss_scale));
    gpt_.backward(parameters_);
    tokens += static_cast<double>(batch.targets.size());
  }
  const bool asked = request_.stop != nullptr && request_.stop->asked() != 0;
  // Processors whose cosines differ in a bit would part replicas: the rate is rank 0's. As Megatron
  // and DeepSpeed do, a step that is skipped takes its samples, and nothing of the schedule.
  const double rate =
      leads() ? learning_rate(config_.train, static_cast<int>(model_.updates())) : 0.0;
  std::array<double, 4> totals = {tree_sum(losses), tokens, asked ? 1.0 : 0.0, rate};
  model_.sum_over_ranks(totals);
  return {
      .loss = totals[0], .tokens = totals[1], .stop = totals[2] > 0, .learning_rate = totals[3]};
}

StepRecord Trainer::train_step() {
  const auto begin = Clock::now();
  const double waited = world_.seconds_waited();
  const Totals totals = pass();
  const StepResult result =
      model_.step(static_cast<float>(totals.learning_rate), totals.tokens / loss_divisor());
  ++step_;
  samples_ += config_.train.batch;
  stopping_ = totals.stop;
  count_skipped(result);
  if (request_.stop != nullptr && (stopping_ || diverged() || step_ == last_step_)) {
    request_.stop->settle();
  }
  StepRecord record;
  record.step = step_;
  record.loss = totals.loss / totals.tokens;
  record.tokens_per_s = totals.tokens / seconds(Clock::now() - begin);
  record.grad_norm = result.grad_norm;
  record.exposed_comm_ms = 1000 * (world_.seconds_waited() - waited);
  record.skipped = result.skipped;
  if (config_.sharding.loss_scale.dynamic) {
    record.loss_scale = result.loss_scale;
  }
  tell(result);
  return record;
}

/// While a scale can fall there is hope: the next step tries a lower one.
void Trainer::count_skipped(const StepResult& result) {
  const LossScaleOptions& scale = config_.sharding.loss_scale;
  if (!result.skipped) {
    skipped_ = 0;
  } else if (!scale.dynamic || result.loss_scale <= scale.least) {
    ++skipped_;
  }
}

void Trainer::tell(const StepResult& result) {
  if (!result.skipped) {
    return;
  }
  if (config_.sharding.loss_scale.dynamic) {
    say("step {}: gradients overflow, nothing was changed; the loss scale is now {}\n", step_,
        model_.loss_scale());
  } else {
    say("step {}: the gradient is not finite, so nothing was changed; lower train.learning_rate\n",
        step_);
  }
}

double Trainer::validate(int samples) {
  samples = batches_.validation_samples(samples);
  double loss = 0;
  for (int index = 0; index < batches_.validation_batches(samples); ++index) {
    const Batch batch = batches_.validation(index, samples, share());
    loss += gpt_.forward(parameters_, batch.inputs, batch.targets);
  }
  model_.sum_over_ranks(std::span(&loss, 1));
  return loss / (double{1} * samples * config_.model.context);
}

TrainingState Trainer::state() const {
  const std::size_t to_learn = batches_.training_text().size();
  return {.step = step_,
          .samples = samples_,
          .notes = run_notes(config_, {.ranks = world_.size(),
                                       .row = fmt::format("{}, degree {}", model_.strategy().name,
                                                          model_.hybrid_shard_degree()),
                                       .text_bytes = to_learn + batches_.validation_text().size(),
                                       .training_bytes = to_learn,
                                       .text_checksum = batches_.text_checksum(),
                                       .gemm = gemm_->name()})};
}

TrainingState Trainer::resume() {
  if (request_.resume) {
    if (const auto path = resume_path(world_, config_, *request_.resume)) {
      const TrainingState saved = load_checkpoint(model_, *path);
      say("resuming after step {} from {}\n", saved.step, *path);
      return saved;
    }
    say("no checkpoint in {} yet: beginning anew\n", config_.checkpoint.folder);
  }
  if (request_.start) {
    load_parameters(model_, *request_.start);
    say("starting with the parameters in {}\n", *request_.start);
  }
  return {};
}

void Trainer::train(std::vector<StepRecord>& records) {
  Progress progress(step_, last_step_, Clock::now());
  const OptimizationConfig& train = config_.train;
  while (step_ < last_step_ && !stopping_ && !diverged()) {
    StepRecord record = train_step();
    if (diverged()) {
      // Neither saved nor validated: what is left is what was saved before.
    } else if (step_ == last_step_) {
      save_last();  // before what may take long
      record.validation_loss = validate(all_samples);
    } else if (train.validate_every > 0 && step_ % train.validate_every == 0 && !stopping_) {
      record.validation_loss = validate(train.validation_samples);
    }
    if (const auto line = progress.step(record, Clock::now())) {
      say("{}\n", *line);
    }
    if (report_) {
      report_->write(record);
    }
    records.push_back(record);
    if (record.skipped) {
      checkpoints_.skipped_step(step_, request_.stop);
    } else {
      checkpoints_.step(state(), request_.stop);
    }
  }
}

void Trainer::save_last() {
  checkpoints_.finish(state());
  if (request_.stop != nullptr) {
    request_.stop->stop_listening();
  }
}

int Trainer::run() {
  introduce();
  if (request_.report && leads()) {
    report_.emplace(*request_.report, step_);
  }
  if (step_ >= last_step_) {
    say("{} steps are done already; raise train.steps or --steps\n", step_);
    return 0;
  }
  if (request_.stop != nullptr) {
    request_.stop->listen(std::chrono::seconds(config_.train.stop_grace_s));
  }
  std::vector<StepRecord> records;
  train(records);
  if (diverged()) {
    return end_diverged();
  }
  if (step_ < last_step_) {
    checkpoints_.finish(state());
    return end_stopped();
  }
  finish(records);
  return 0;
}

int Trainer::end_stopped() {
  if (checkpoints_.enabled()) {
    say("stopped after step {}, saved in {}: --resume goes on from there\n", step_,
        config_.checkpoint.folder);
  } else {
    say("stopped after step {}; without checkpoint.folder nothing is saved\n", step_);
  }
  world_.barrier();  // nobody ends with a status that makes a launcher kill the others
  return 128 + SIGTERM;
}

int Trainer::end_diverged() {
  checkpoints_.complete();
  const std::optional<std::string> last =
      checkpoints_.enabled() ? latest_checkpoint(world_, config_.checkpoint.folder) : std::nullopt;
  const bool scaled = config_.sharding.loss_scale.dynamic;
  if (leads()) {
    fmt::print(
        stderr,
        "sprat: after step {}: {} steps in a row were skipped because their gradients were "
        "not finite{}: the run has diverged (train.max_skipped_steps). {}; lower "
        "train.learning_rate{}{}\n",
        step_, skipped_, scaled ? " at the least loss scale" : "",
        last ? fmt::format("{} is from before", *last) : "Nothing is saved",
        scaled ? " or train.precision.loss_scale.least, or train in bf16" : "",
        last ? ", and go on from it by --resume, or from an earlier one by --resume PATH" : "");
  }
  world_.barrier();  // nobody ends with a status that makes a launcher kill the others
  return 1;
}

void Trainer::finish(const std::vector<StepRecord>& records) {
  say("\n{}\nvalidation loss {:.4f} nats per byte ({:.2f} bits)\n",
      plot_losses(records, plot_columns, plot_rows), *records.back().validation_loss,
      *records.back().validation_loss / 0.6931471805599453);
  if (config_.train.sample_bytes > 0) {
    write_text();
  }
  advise();
  // Nobody leaves while rank 0 still writes: a forward pass for each byte, on one thread.
  world_.barrier({.timeout = std::chrono::hours(24 * 365)});
}

void Trainer::write_text() {
  const std::vector<int> order = gpt_forward_order(config_.model);
  if (!leads()) {
    for (const int unit : order) {  // its part of rank 0's copies
      parameters_.acquire(unit);
      parameters_.release(unit);
    }
    return;
  }
  WholeParameters whole(parameters_, units_, order);
  Gpt writer(config_.model, 1, gemm_);
  const std::string sample = write_sample(writer, whole,
                                          {.prompt = config_.train.prompt,
                                           .bytes = config_.train.sample_bytes,
                                           .temperature = config_.train.temperature,
                                           .seed = config_.sharding.seed,
                                           .context = config_.model.context});
  const WordShare words = known_words(sample, words_of(batches_.training_text()));
  say("\nthe model writes (temperature {}):\n{:-<72}\n{}{}\n{:-<72}\n", config_.train.temperature,
      "", config_.train.prompt, sample, "");
  say("{} of its {} words ({:.0f} %) occur in the training text\n", words.known, words.words,
      100 * words.share());
}

void Trainer::advise() const {
  const int ranks = world_.size(), degree = model_.hybrid_shard_degree();
  say("\nwhat to try next:\n");
  if (config_.sharding.strategy.empty() && ranks > 1) {
    say("  parallel.hybrid_shard_degree {}: the same losses{}, another share of memory each\n",
        degree == ranks ? 1 : ranks,
        same_bits_on_any_row(config_, ranks) ? " to the bit" : " but for rounding");
  }
  say("  --virtual-ranks {}: the same ranks as threads of one process, the same losses again\n",
      ranks);
  say("  more train.steps, or a larger model.width: a lower loss for more time\n");
  say("  data.files: your own text; --report FILE: every step's figures as JSON\n");
}

}  // namespace sprat::train
