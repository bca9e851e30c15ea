// What a run learns from, wherever it lies: the micro-batches of each step, and what is held out.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sprat/checkpoint.hpp"
#include "train/data/batch_cut.hpp"
#include "train/data/token_codec.hpp"
#include "train/data/tokenized_text.hpp"
#include "train/rank_memory.hpp"

namespace sprat::train {

/// What its tokens are, among the notes of a run's checkpoints, as TokenCodec describes it.
constexpr const char* tokenizer_note = "data.tokenizer";
/// Where a run stands in data that a loader reads.
constexpr const char* place_note = "place in data.sources";

/// Of data that is read while a run trains.
class DataWaits {
 public:
  virtual ~DataWaits() = default;
  /// For the batches of steps, so far.
  virtual double seconds_waited() const = 0;
  virtual void note_step(std::chrono::nanoseconds took) = 0;
  /// One line on what limits reading, of the time since the last one.
  virtual std::string limit() = 0;
};

/// One rank's samples. One thread at a time.
class TrainingData {
 public:
  virtual ~TrainingData() = default;

  /// The micro-batches of the step that begins at a sample of the run, as much of each as this rank
  /// reads. Steps are asked for in their order, from the beginning or where resume() says.
  virtual std::vector<Batch> step(std::int64_t first_sample) = 0;
  virtual std::uint64_t samples_per_epoch() const = 0;
  /// What this rank reads of a batch of the first `samples` that are held out, as
  /// BatchCut::validation_range() cuts them. Asked for in order, from index 0 on.
  virtual Batch validation(int index, int samples) = 0;
  /// That are held out; at most `wanted`.
  virtual int validation_samples(int wanted) const = 0;

  /// Goes on where a checkpoint was. Throws Error{invalid_argument}, the same on every rank, if
  /// that was in other data.
  virtual void resume(const TrainingState& saved) = 0;
  /// For checkpoints: what the data is, and where the run stands in it.
  virtual std::map<std::string, std::string> notes() const = 0;

  /// What tokens mean; null where nobody says.
  virtual const TokenCodec* codec() const = 0;
  /// All of it, where it is held; else null.
  virtual const TokenizedText* text() const = 0;
  /// Tokens of the text that are to learn; those behind are held out.
  virtual std::uint64_t training_tokens() const = 0;
  /// Of a token that is held out, about.
  virtual double bytes_per_token() const = 0;
  /// Null where everything is in memory before the first step.
  virtual DataWaits* waits() = 0;
  /// For people: how much there is, and how it is read.
  virtual std::string about() const = 0;
  /// Adds what the rank holds for it.
  virtual void count_memory(RankMemory& memory) const = 0;
};

/// "byte" or "token".
inline const char* token_word(const TrainingData& data) {
  return data.codec() != nullptr && data.codec()->is_bytes() ? "byte" : "token";
}

}  // namespace sprat::train
