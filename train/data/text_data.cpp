#include "train/data/text_data.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "train/check.hpp"

namespace sprat::train {

std::vector<Batch> TextData::step(std::int64_t first_sample) {
  std::vector<Batch> batches;
  for (int micro_step = 0; micro_step < batches_.cut().micro_steps(); ++micro_step) {
    batches.push_back(batches_.training(first_sample, micro_step, share_));
  }
  return batches;
}

/// How many samples came before is all that decides on those that follow, so there is nothing to do
/// but to look what they were of.
void TextData::resume(const TrainingState& saved) {
  check(!saved.notes.contains(place_note),
        "the checkpoint is of a run that read data.sources, and data.files are another order: give "
        "the same data.sources, or begin with its parameters by --start");
}

std::map<std::string, std::string> TextData::notes() const {
  const TokenizedText& text = batches_.text();
  return {{"bytes of text", std::to_string(text.text_bytes())},
          {text.codec().is_bytes() ? "bytes to learn" : "tokens to learn",
           std::to_string(batches_.training_tokens())},
          {"checksum of the text", fmt::format("{:016x}", text.checksum())},
          {tokenizer_note, text.codec().description()}};
}

double TextData::bytes_per_token() const {
  const TokenizedText& text = batches_.text();
  return static_cast<double>(text.text_bytes()) /
         static_cast<double>(std::max<std::size_t>(text.size(), 1));
}

std::string TextData::about() const {
  return fmt::format("{} {}s to learn, {} held out", batches_.training_tokens(), token_word(*this),
                     batches_.validation_tokens());
}

}  // namespace sprat::train
