// A text that every rank has whole, as tokens.
#pragma once

#include "train/data/batches.hpp"
#include "train/data/training_data.hpp"

namespace sprat::train {

class TextData final : public TrainingData {
 public:
  TextData(Batches batches, BatchShare share) : batches_(std::move(batches)), share_(share) {}

  std::vector<Batch> step(std::int64_t first_sample) override;
  std::uint64_t samples_per_epoch() const override { return batches_.samples_per_epoch(); }
  Batch validation(int index, int samples) override {
    return batches_.validation(index, samples, share_);
  }
  int validation_samples(int wanted) const override { return batches_.validation_samples(wanted); }
  void resume(const TrainingState& saved) override;
  std::map<std::string, std::string> notes() const override;
  const TokenCodec* codec() const override { return &batches_.text().codec(); }
  const TokenizedText* text() const override { return &batches_.text(); }
  std::uint64_t training_tokens() const override { return batches_.training_tokens(); }
  double bytes_per_token() const override;
  DataWaits* waits() override { return nullptr; }
  std::string about() const override;
  void count_memory(RankMemory& memory) const override {
    memory.text += batches_.text().held_bytes();
  }

 private:
  Batches batches_;
  BatchShare share_;
};

}  // namespace sprat::train
