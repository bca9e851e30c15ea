// A run as `sprat train` asks for it.
#include "train/train.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/config/config.hpp"
#include "train/config/settings.hpp"
#include "train/data/loaded_data.hpp"
#include "train/data/text_data.hpp"
#include "train/pipeline_plan.hpp"
#include "train/report.hpp"
#include "train/trainer.hpp"

namespace sprat::train {
namespace {

/// Tells how far the encoding of a text is, every two seconds, and how fast it was.
class ReadingProgress {
 public:
  explicit ReadingProgress(bool tells) : tells_(tells) {}

  void read(const TokenizedText& text) {
    if (tells_ && Clock::now() - last_ >= std::chrono::seconds(2)) {
      last_ = Clock::now();
      tell("reading text", text);
    }
  }
  void finish(const TokenizedText& text) const {
    if (tells_ && !text.codec().is_bytes()) {
      tell("text", text);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void tell(const char* what, const TokenizedText& text) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double megabytes = static_cast<double>(text.text_bytes()) / 1e6;
    fmt::print("{}: {:.1f} MB as {} tokens of {}, {:.1f} s ({:.1f} MB/s)\n", what, megabytes,
               text.size(), text.codec().vocabulary(), seconds, megabytes / seconds);
    std::fflush(stdout);
  }

  bool tells_;  // rank 0 alone, unless it is to be quiet
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
};

Tokenizer tokenizer_of(const std::string& path) {
  try {
    return read_tokenizer(path);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("data.tokenizer: {}; give a tokenizer.json of GPT-2's "
                                          "kind, or leave it out to read bytes",
                                          error.what()));
  }
}

TokenizedText read_tokenized(const DataConfig& data, const TokenizedText::Tell& tell) {
  if (data.tokenizer.empty()) {
    return TokenizedText(read_text(data.files));
  }
  Tokenizer tokenizer = tokenizer_of(data.tokenizer);
  try {
    return {std::move(tokenizer), data.files, tell};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) {
      throw;  // it names a file
    }
    // What is no UTF-8 is found where files are not told apart any more.
    throw Error(error.code(), fmt::format("data.files: {}", error.what()));
  }
}

/// What rank and configuration say, and what the files of either kind hold.
struct AgreedRun {
  TrainConfig config;
  std::optional<Batches> batches;   ///< Of a text.
  std::optional<TokenCodec> codec;  ///< Of sources, if they have one.
};

Settings read_text_run(AgreedRun& agreed, bool tells) {
  ReadingProgress progress(tells);
  TokenizedText text = read_tokenized(agreed.config.data,
                                      [&](const TokenizedText& so_far) { progress.read(so_far); });
  progress.finish(text);
  fit_vocabulary(agreed.config, text.codec().vocabulary());
  agreed.batches.emplace(std::move(text), agreed.config);
  return text_settings(agreed.batches->text());
}

/// Sources are opened once it is known which of their samples a rank reads.
Settings read_codec(AgreedRun& agreed) {
  const DataConfig& data = agreed.config.data;
  if (data.is_bytes()) {
    agreed.codec.emplace();
  } else if (!data.tokenizer.empty()) {
    agreed.codec.emplace(tokenizer_of(data.tokenizer));
    fit_vocabulary(agreed.config, agreed.codec->vocabulary());
  }
  return {{"data.tokenizer", agreed.codec ? agreed.codec->description() : "not given"}};
}

AgreedRun agree_on_run(Communicator& world, const TrainRequest& request) {
  AgreedRun agreed;
  agree_on_settings(world, [&] {  // before anything that waits for ranks that do the same
    if (request.report && world.rank() == 0) {
      ReportFile::try_place(*request.report);
    }
    agreed.config = read_train_config(request.config);
    Settings data = agreed.config.data.has_sources()
                        ? read_codec(agreed)
                        : read_text_run(agreed, world.rank() == 0 && !request.quiet);
    Settings settings = settings_of(agreed.config);
    settings.merge(data);
    settings.merge(request_settings(request));
    return settings;
  });
  return agreed;
}

std::unique_ptr<TrainingData> open_data(Communicator& world, AgreedRun& agreed, BatchShare share) {
  if (agreed.batches) {
    return std::make_unique<TextData>(*std::move(agreed.batches), share);
  }
  const std::vector<int>& hosts = world.hosts();
  agreed.config.data.loader.ranks_on_host =
      static_cast<int>(std::ranges::count(hosts, hosts[static_cast<std::size_t>(world.rank())]));
  std::unique_ptr<LoadedData> loaded;
  agree_on_settings(world, [&] {  // or one rank that cannot read leaves the others waiting
    loaded = std::make_unique<LoadedData>(agreed.config, std::move(agreed.codec), share);
    return loaded->settings();
  });
  return loaded;
}

}  // namespace

int run(Communicator& world, const TrainRequest& request) {
  AgreedRun agreed = agree_on_run(world, request);
  const TrainConfig& config = agreed.config;
  const PipelinePlan plan = plan_pipeline(config, world.size());  // refuses what is at odds
  const int steps = request.steps.value_or(config.train.steps);
  if (steps < 1) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--steps is {}; it is at least 1", steps));
  }
  Communicator by_host = order_by_host(world);
  const BatchShare share = plan_of_rank(config, plan, by_host.rank()).share;
  const std::unique_ptr<TrainingData> data = open_data(world, agreed, share);
  return Trainer(by_host, config, request, *data).run();
}

}  // namespace sprat::train
