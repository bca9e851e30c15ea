// A byte-pair tokenizer small enough to merge by hand, as its files spell it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/tokenizer/model.hpp"

namespace sprat::io {

using SpeltMerges = std::vector<std::pair<std::string, std::string>>;

/// 256 bytes by their value, then what the merges make, in order; then <|endoftext|>.
inline nlohmann::json small_vocabulary(const SpeltMerges& merges) {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[byte_character(static_cast<std::byte>(byte))] = byte;
  }
  for (const auto& [left, right] : merges) {
    const auto next = vocabulary.size();
    vocabulary.emplace(left + right, next);
  }
  const auto last = vocabulary.size();
  vocabulary["<|endoftext|>"] = last;
  return vocabulary;
}

/// What tokenizer.json holds.
inline nlohmann::json small_tokenizer(const SpeltMerges& merges) {
  nlohmann::json root = nlohmann::json::parse(R"({"version": "1.0", "truncation": null,
    "padding": null, "normalizer": null, "post_processor": {"type": "ByteLevel"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "dropout": null}})");
  root["model"]["vocab"] = small_vocabulary(merges);
  root["model"]["merges"] = merges;
  root["added_tokens"] = {{{"id", root["model"]["vocab"]["<|endoftext|>"]},
                           {"content", "<|endoftext|>"},
                           {"normalized", false},
                           {"special", true}}};
  return root;
}

}  // namespace sprat::io
