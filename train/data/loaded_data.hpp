// Tokens in files, which a loader reads while a run trains.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "sprat/data.hpp"
#include "train/data/training_data.hpp"

namespace sprat::train {

/// How a rank's loaders are to read: options of its own, else the configuration's. Pure.
struct LoadedOptions {
  LoaderOptions training, validation;
};
LoadedOptions loaded_options(const TrainConfig& config, BatchShare share);

/// The samples of a run are those of one loader, whose batches are the steps: each rank takes what
/// BatchCut says of them, so they are the same at any number of ranks. What is held out is other
/// files', in their order.
class LoadedData final : public TrainingData, public DataWaits {
 public:
  /// Opens the files, and begins to read ahead. `codec`: what tokens mean, if somebody says. Throws
  /// Error naming the configuration's key, or the file.
  LoadedData(const TrainConfig& config, std::optional<TokenCodec> codec, BatchShare share);

  /// What all ranks must see alike, by the configuration's keys.
  std::map<std::string, std::string> settings() const;

  std::vector<Batch> step(std::int64_t first_sample) override;
  std::uint64_t samples_per_epoch() const override { return training_.samples_per_epoch(); }
  Batch validation(int index, int samples) override;
  int validation_samples(int wanted) const override;
  void resume(const TrainingState& saved) override;
  std::map<std::string, std::string> notes() const override;
  const TokenCodec* codec() const override { return codec_ ? &*codec_ : nullptr; }
  const TokenizedText* text() const override { return nullptr; }
  std::uint64_t training_tokens() const override;
  double bytes_per_token() const override { return bytes_per_token_; }
  DataWaits* waits() override { return this; }
  std::string about() const override;
  void count_memory(RankMemory& memory) const override;

  double seconds_waited() const override { return seconds_waited_; }
  void note_step(std::chrono::nanoseconds took) override { training_.note_step(took); }
  std::string limit() override { return training_.report().text; }

 private:
  /// Appends the samples [first, first + count) of a loader's batch.
  void append(const DataBatch& rows, SampleRange range, const std::vector<DataSource>& sources,
              Batch& to) const;
  DataBatch next_held_out(int index);
  void measure_tokens(const Batch& batch);

  BatchShare share_;
  BatchCut cut_;
  int context_, tokens_;  // of a sample; that there may be
  std::optional<TokenCodec> codec_;
  LoadedOptions options_;
  Loader training_, validation_;
  std::string validation_start_;
  int next_validation_ = 0;  // index
  double seconds_waited_ = 0, bytes_per_token_;
};

}  // namespace sprat::train
