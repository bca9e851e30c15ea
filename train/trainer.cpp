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

#include "train/data/gathered_batches.hpp"
#include "train/loading_horizon.hpp"
#include "train/sample.hpp"
#include "train/schedule.hpp"
#include "train/tensor_cost.hpp"
#include "train/whole_model.hpp"

namespace sprat::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int plot_columns = 64, plot_rows = 14;
constexpr int all_samples = std::numeric_limits<int>::max();

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// The kernel that the run so far had, if it is of the kind that the configuration names; else the
/// kind.
std::string kernel_of(const TrainingState& state, const std::string& kind) {
  const auto found = state.notes.find(kernel_note);
  return found != state.notes.end() && found->second.starts_with(kind) ? found->second : kind;
}

}  // namespace

Trainer::Trainer(Communicator& world, const TrainConfig& config, const TrainRequest& request,
                 TrainingData& data)
    : world_(world),
      config_(config),
      request_(request),
      last_step_(request.steps.value_or(config.train.steps)),
      cut_(config),
      data_(data),
      part_(world, config),
      checkpoints_(world, part_.model(), config.checkpoint,
                   [this](const std::string& line) { say("{}\n", line); }),
      resumed_(resume()),
      gemm_(agree_on_gemm_backend(world, kernel_of(resumed_, config.train.gemm))),
      passes_(part_, config, gemm_, cut_.largest_share(part_.share().ranks)),
      step_(static_cast<int>(resumed_.step)),
      samples_(resumed_.samples) {}

void Trainer::introduce() const {
  const GptShape& shape = config_.model;
  const OptimizationConfig& train = config_.train;
  const int microbatches = config_.sharding.micro_steps;
  say("GPT of {} parameters: {} layers of width {}, {} heads, context {}\n",
      part_.parameter_count(), shape.layers, shape.width, shape.heads, shape.context);
  say("{}; {} samples a step", data_.about(), train.batch);
  say("{}\n", microbatches == 1 ? "" : fmt::format(" in {} micro-batches", microbatches));
  const ShardedModel& model = part_.model();
  say("{} ranks, hybrid_shard_degree {} ({}), matrix products by {}\n", world_.size(),
      model.hybrid_shard_degree(), model.strategy().name, gemm_->name());
  say("{}", pipeline_text(config_, part_.plan()));
  for (const std::string& warning :
       batch_warnings(config_, {.ranks = part_.share().ranks,
                               .samples_per_epoch = data_.samples_per_epoch(),
                               .parameters = part_.parameter_count()})) {
    say("warning: {}\n", warning);
  }
  if (const auto warning = tensor_warning(config_, part_.plan(), world_.hosts())) {
    say("warning: {}\n", *warning);
  }
  for (const std::string& warning : gemm_warnings()) {
    say("warning: {}\n", warning);
  }
  for (const std::string& warning : resume_warnings(resumed_.notes, state().notes)) {
    say("warning: {}\n", warning);
  }
}

/// The plans of all ranks are gathered: whoever needs to know whether a run fits asks for the rank
/// that holds most, and that is rarely rank 0.
void Trainer::tell_memory() {
  RankMemory mine = passes_.memory();
  data_.count_memory(mine);
  const bool copies = leads() && writes_text() && !has_whole_model(part_);
  mine.sample = copies ? whole_model_bytes(config_.model) : 0;
  const std::vector<std::uint64_t> part = numbers_of(mine);
  std::vector<std::uint64_t> whole(part.size() * static_cast<std::size_t>(world_.size()));
  world_.all_gather(elements(part), elements(whole)).wait();
  std::vector<RankMemory> by_rank;
  for (std::size_t at = 0; at < whole.size(); at += part.size()) {
    by_rank.push_back(memory_of(std::span(whole).subspan(at, part.size())));
  }
  say("{}", memory_text(by_rank));
  const ActivationConfig& activations = config_.pipeline.activations;
  if (activations.offload && activations.tier == "memory") {
    // SMP's activations leave a GPU for the host's memory; here they are in it already.
    say("warning: activations go to the tier \"memory\", which is memory of the same host and is "
        "not "
        "counted above: nothing is saved; give parallel.activation_tier as \"file:FOLDER\"\n");
  }
}

/// Powers of two change no bits, and keep the gradient of so many tokens within a narrow wire's
/// range; step() divides by what is left.
double Trainer::loss_divisor() const {
  return static_cast<double>(std::bit_floor(static_cast<std::uint64_t>(config_.train.batch) *
                                            static_cast<std::uint64_t>(config_.model.context)));
}

std::vector<Batch> Trainer::next_batches() {
  const TraceSpan span(world_.tracer(), TraceRow::loader, "batch");
  return gather_batches(part_.tensor_group(), part_.share(), own_context(config_),
                        data_.step(samples_));
}

Trainer::Totals Trainer::pass() {
  const auto loss_scale = static_cast<float>(part_.model().loss_scale() / loss_divisor());
  DataWaits* waits = data_.waits();
  const double waited = waits == nullptr ? 0 : waits->seconds_waited();
  const std::vector<Batch> batches = next_batches();
  const double data_wait = waits == nullptr ? 0 : waits->seconds_waited() - waited;
  double tokens = 0;
  for (const Batch& batch : batches) {
    tokens += static_cast<double>(batch.targets.size());
  }
  const double loss = tree_sum(passes_.train(batches, loss_scale));
  const PassTimes times = passes_.times();
  const bool asked = request_.stop != nullptr && request_.stop->asked() != 0;
  // Processors whose cosines differ in a bit would part replicas: the rate is rank 0's. As Megatron
  // and DeepSpeed do, a step that is skipped takes its samples, and nothing of the schedule.
  const double rate =
      leads() ? learning_rate(config_.train, static_cast<int>(part_.model().updates())) : 0.0;
  std::array<double, 4> totals = {loss, part_.mine().tells_loss ? tokens : 0.0, asked ? 1.0 : 0.0,
                                  rate};
  part_.sum_over_job(totals);
  // Apart from what is the same in every run, or digests of these sums would tell no two runs
  // alike.
  std::array<double, 5> waits_of_job = {times.idle, times.message_wait_s, times.load_stall_s,
                                        times.store_wait_s, data_wait};
  world_
      .all_reduce(elements(waits_of_job), ReduceOp::sum,
                  {.timeout = {}, .blocking = true, .digested = false})
      .wait();
  const double ranks = world_.size();
  return {.loss = totals[0],
          .tokens = totals[1],
          .stop = totals[2] > 0,
          .learning_rate = totals[3],
          .times = {.idle = waits_of_job[0] / ranks,
                    .message_wait_s = waits_of_job[1] / ranks,
                    .load_stall_s = waits_of_job[2] / ranks,
                    .store_wait_s = waits_of_job[3] / ranks},
          .data_wait_s = waits_of_job[4] / ranks};
}

StepRecord Trainer::train_step() {
  const auto begin = Clock::now();
  const std::string name = fmt::format("step {}", step_ + 1);
  const TraceSpan span(world_.tracer(), TraceRow::steps, name);
  world_.mark_step(step_ + 1);
  const double waited = world_.seconds_waited();
  const Totals totals = pass();
  const StepResult result =
      part_.step(static_cast<float>(totals.learning_rate), totals.tokens / loss_divisor());
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
  if (part_.pipeline().size() > 1) {
    // Who waits for another stage's message mostly waits for that stage to compute: the bubble.
    record.exposed_comm_ms -= 1000 * passes_.times().message_wait_s;
    record.bubble = totals.times.idle;
    record.message_wait_ms = 1000 * totals.times.message_wait_s;
  }
  if (config_.pipeline.activations.offload) {
    record.load_stall_ms = 1000 * totals.times.load_stall_s;
    record.store_wait_ms = 1000 * totals.times.store_wait_s;
  }
  if (DataWaits* waits = data_.waits()) {
    record.data_wait_ms = 1000 * totals.data_wait_s;
    waits->note_step(Clock::now() - begin);
  }
  record.skipped = result.skipped;
  if (config_.sharding.loss_scale.dynamic) {
    record.loss_scale = result.loss_scale;
  }
  tell(result);
  return record;
}

void Trainer::choose_horizon() {
  const ActivationConfig& activations = config_.pipeline.activations;
  if (!horizon_is_open(activations)) {
    return;
  }
  const auto choice = agree_on_horizon(world_, passes_.choose_horizon(), activations.horizon_limit);
  if (choice) {
    passes_.set_horizon(choice->horizon);
  }
  say("{}\n", horizon_text(activations, choice, step_));
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
        part_.model().loss_scale());
  } else {
    say("step {}: the gradient is not finite, so nothing was changed; lower train.learning_rate\n",
        step_);
  }
}

double Trainer::validate(int samples) {
  samples = data_.validation_samples(samples);
  const int together = config_.sharding.micro_steps;
  // A place for each sample, 0 on ranks that have nothing of it: whoever has which, they are added
  // in one order.
  std::vector<double> losses(static_cast<std::size_t>(samples));
  for (int index = 0; index < cut_.validation_batches(samples, part_.share().ranks);
       index += together) {
    std::vector<Batch> batches;  // behind the last batch they are empty
    std::vector<int> numbers;
    for (int next = index; next < index + together; ++next) {
      batches.push_back(data_.validation(next, samples));
      const SampleRange range = cut_.validation_range(next, samples, part_.share());
      for (int sample = range.first; sample < range.first + range.count; ++sample) {
        numbers.push_back(sample);
      }
    }
    batches = gather_batches(part_.tensor_group(), part_.share(), own_context(config_),
                             std::move(batches));
    const std::vector<double> told = passes_.evaluate(batches);
    for (std::size_t at = 0; at < told.size(); ++at) {
      losses[static_cast<std::size_t>(numbers[at])] = told[at];
    }
  }
  part_.sum_over_job(losses);
  return tree_sum(losses) / (double{1} * samples * config_.model.context);
}

TrainingState Trainer::state() const {
  return {.step = step_,
          .samples = samples_,
          .notes =
              run_notes(config_, {.data_ranks = part_.share().ranks,
                                  .row = fmt::format("{}, degree {}", part_.model().strategy().name,
                                                     part_.model().hybrid_shard_degree()),
                                  .data = data_.notes(),
                                  .gemm = gemm_->name()})};
}

TrainingState Trainer::resume() {
  const std::string tokens = data_.codec() == nullptr ? "" : data_.codec()->description();
  if (request_.resume) {
    if (const auto path = resume_path(world_, config_, *request_.resume)) {
      require_same_tokens(world_, *path, tokens);
      const TrainingState saved = load_checkpoint(world_, part_.model(), *path);
      data_.resume(saved);
      say("resuming after step {} from {}\n", saved.step, *path);
      return saved;
    }
    say("no checkpoint in {} yet: beginning anew\n", config_.checkpoint.folder);
  }
  if (request_.start) {
    require_same_tokens(world_, *request_.start, tokens);
    load_parameters(world_, part_.model(), *request_.start);
    say("starting with the parameters in {}\n", *request_.start);
  }
  return {};
}

void Trainer::train(std::vector<StepRecord>& records) {
  const ActivationConfig& activations = config_.pipeline.activations;
  Progress progress(step_, last_step_, Clock::now(), activations.offload ? activations.tier : "");
  const OptimizationConfig& train = config_.train;
  const int measured = step_ + 2;  // the first step makes its memory, which takes time, too
  while (step_ < last_step_ && !stopping_ && !diverged()) {
    show(progress, "training");
    StepRecord record = train_step();
    if (step_ == measured) {
      choose_horizon();
    }
    if (diverged()) {
      // Neither saved nor validated: what is left is what was saved before.
    } else if (step_ == last_step_) {
      show(progress, "saving");
      save_last();  // before what may take long
      show(progress, "validating");
      record.validation_loss = validate(all_samples);
    } else if (train.validate_every > 0 && step_ % train.validate_every == 0 && !stopping_) {
      show(progress, "validating");
      record.validation_loss = validate(train.validation_samples);
    }
    tell_progress(progress, record);
    add_to_report(record);
    records.push_back(record);
    show(progress, checkpoints_.saves_at(step_) ? "saving" : "training");
    if (record.skipped) {
      checkpoints_.skipped_step(step_, request_.stop);
    } else {
      checkpoints_.step(state(), request_.stop);
    }
  }
  if (request_.view != nullptr && leads()) {
    request_.view->clear();
  }
}

void Trainer::tell_progress(Progress& progress, StepRecord& record) {
  const auto line = progress.step(record, Clock::now());
  if (!line) {
    return;
  }
  // Where a line is drawn anew, it says how far the run is; what lines say besides is said.
  const bool is_shown = request_.view != nullptr && request_.view->replaces_lines;
  const bool says = request_.quiet
                        ? progress.reason() == Progress::Reason::warning
                        : !is_shown || progress.reason() != Progress::Reason::time_has_passed;
  if (says) {
    say("{}\n", *line);
  }
  DataWaits* waits = data_.waits();
  if (waits != nullptr && progress.waits_for_data()) {
    record.data_limit = waits->limit();
    if (says) {
      say("data: {}\n", *record.data_limit);
    }
  }
}

/// A run is worth more than what tells of it: a full disk ends the report alone.
void Trainer::add_to_report(const StepRecord& record) {
  if (!report_) {
    return;
  }
  try {
    report_->write(record);
  } catch (const Error& error) {
    fmt::print(stderr, "sprat: {}; the run goes on, and the report ends before step {}\n",
               error.what(), record.step);
    report_.reset();
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
  tell_memory();
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
  const double loss = *records.back().validation_loss, bits = loss / 0.6931471805599453;
  say("\n{}\nvalidation loss {:.4f} nats per {} ({:.2f} bits",
      plot_losses(records, plot_columns, plot_rows, token_word(data_)), loss, token_word(data_),
      bits);
  const TokenizedText* text = data_.text();
  if (text != nullptr && !text->codec().is_bytes()) {  // what does not depend on how a text is cut
    say(", {:.3f} a byte", bits / held_out_bytes_per_token(*text));
  }
  say(")\n");
  if (writes_text()) {
    write_text();
  }
  advise();
  // Nobody leaves while rank 0 still writes: a forward pass for each byte, on one thread.
  world_.barrier({.timeout = std::chrono::hours(24 * 365)});
}

double Trainer::held_out_bytes_per_token(const TokenizedText& text) const {
  const std::size_t learnt = data_.training_tokens();
  std::size_t bytes = 0;
  text.for_each_piece(learnt, text.size(), [&](std::string_view piece) { bytes += piece.size(); });
  return static_cast<double>(bytes) / static_cast<double>(text.size() - learnt);
}

void Trainer::write_text() {
  std::optional<WholeModel> copy;
  if (!has_whole_model(part_)) {
    copy.emplace(part_, passes_.parameters(), config_);
  }
  if (!leads()) {
    return;
  }
  Parameters& whole = copy ? static_cast<Parameters&>(*copy) : passes_.parameters();
  const TokenCodec& codec = *data_.codec();
  const std::vector<std::int32_t> prompt = codec.encode(config_.train.prompt);
  const int tokens = tokens_of_bytes(data_.bytes_per_token(), config_.train.sample_bytes);
  // A context that no rank holds is rarely as long as what is written.
  const std::int64_t written = static_cast<std::int64_t>(prompt.size()) + tokens;
  const auto most = std::min<std::int64_t>(config_.model.context, written);
  GptStages writer(config_.model, {.max_tokens = static_cast<int>(most)}, gemm_, whole);
  const std::string sample =
      codec.decode(write_sample(writer, {.prompt = prompt,
                                         .tokens = tokens,
                                         .vocabulary = codec.vocabulary(),
                                         .temperature = config_.train.temperature,
                                         .seed = config_.sharding.seed,
                                         .context = config_.model.context}));
  // Both at once: a prompt of bytes may end amid a character, which the model goes on with.
  say("\nthe model writes (temperature {}):\n{:-<72}\n{}\n{:-<72}\n", config_.train.temperature, "",
      printable(config_.train.prompt + sample), "");
  const TokenizedText* text = data_.text();
  if (text == nullptr) {
    return;  // whose words would have to be read again
  }
  const WordShare words = known_words(sample, words_of(*text, data_.training_tokens()));
  say("{} of its {} words ({:.0f} %) occur in the training text\n", words.known, words.words,
      100 * words.share());
}

void Trainer::advise() const {
  const int context = config_.pipeline.context_degree, degree = part_.model().hybrid_shard_degree();
  const int shares = part_.share().ranks, ranks = shares * context;
  say("\nwhat to try next:\n");
  if (config_.sharding.strategy.empty() && shares > 1) {
    say("  parallel.hybrid_shard_degree {}: the same losses{}, another share of memory each\n",
        degree == ranks ? context : ranks,
        same_bits_on_any_row(config_, shares) ? " to the bit" : " but for rounding");
  }
  say("  --virtual-ranks {}: the same ranks as threads of one process, the same losses again\n",
      world_.size());
  say("  more train.steps, or a larger model.width: a lower loss for more time\n");
  say("  data.files: your own text, or data.sources: files of tokens; --report FILE: every step's "
      "figures as JSON\n");
}

}  // namespace sprat::train
