// A run as `sprat train` asks for it.
#include "train/train.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "train/data/batches.hpp"
#include "train/config/config.hpp"
#include "train/config/settings.hpp"
#include "train/pipeline_plan.hpp"
#include "train/data/tokenized_text.hpp"
#include "train/trainer.hpp"

namespace sprat::train {
namespace {

/// Tells how far the encoding of a text is, every two seconds, and how fast it was.
class ReadingProgress {
 public:
  explicit ReadingProgress(bool leads) : leads_(leads) {}

  void read(const TokenizedText& text) {
    if (leads_ && Clock::now() - last_ >= std::chrono::seconds(2)) {
      last_ = Clock::now();
      tell("reading text", text);
    }
  }
  void finish(const TokenizedText& text) const {
    if (leads_ && !text.is_bytes()) {
      tell("text", text);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void tell(const char* what, const TokenizedText& text) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const double megabytes = static_cast<double>(text.text_bytes()) / 1e6;
    fmt::print("{}: {:.1f} MB as {} tokens of {}, {:.1f} s ({:.1f} MB/s)\n", what, megabytes,
               text.size(), text.vocabulary(), seconds, megabytes / seconds);
    std::fflush(stdout);
  }

  bool leads_;  // rank 0 alone tells
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

}  // namespace

int run(Communicator& world, const TrainRequest& request) {
  TrainConfig config;
  std::optional<Batches> batches;
  agree_on_settings(world, [&] {  // before anything that waits for ranks that do the same
    config = read_train_config(request.config);
    ReadingProgress progress(world.rank() == 0);
    TokenizedText text =
        read_tokenized(config.data, [&](const TokenizedText& so_far) { progress.read(so_far); });
    progress.finish(text);
    fit_vocabulary(config, text.vocabulary());
    batches.emplace(std::move(text), config);
    Settings settings = settings_of(config);
    settings.merge(text_settings(*batches));
    settings.merge(request_settings(request));
    return settings;
  });
  plan_pipeline(config, world.size());  // refuses what does not go together
  const int steps = request.steps.value_or(config.train.steps);
  if (steps < 1) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--steps is {}; it is at least 1", steps));
  }
  Communicator by_host = order_by_host(world);
  return Trainer(by_host, config, request, *std::move(batches)).run();
}

}  // namespace sprat::train
