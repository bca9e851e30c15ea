// What a byte-pair tokenizer's files say, checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sprat::io {

/// Two neighbouring tokens that become one. Earlier merges of a model go first.
struct TokenMerge {
  std::int32_t left = 0, right = 0, merged = 0;

  friend bool operator==(const TokenMerge&, const TokenMerge&) = default;
};

/// A token that is found in the text itself, before anything is merged.
struct AddedToken {
  std::string content;
  std::int32_t token = 0;
  bool normalized = false;  ///< Looked for only in what those that are not have left.

  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

struct TokenizerModel {
  std::vector<std::string> tokens;        ///< By number, the bytes that each stands for.
  std::vector<std::int32_t> byte_tokens;  ///< By byte, the token of it alone; 256 of them.
  std::vector<TokenMerge> merges;
  std::vector<AddedToken> added;
  bool prefix_space = false;  ///< A text that begins with no space is read as if it did.

  friend bool operator==(const TokenizerModel&, const TokenizerModel&) = default;
};

/// `file` is for messages. Throws Error{unavailable} for what is damaged, or of another kind.
TokenizerModel parse_tokenizer_json(const std::string& file, std::string_view json);

/// The older pair of files.
struct TokenizerPair {
  std::string_view vocabulary;  ///< JSON: the number of each token.
  std::string_view merges;      ///< A line each: two tokens with a space between.
};
/// `folder` is for messages. <|endoftext|>, if there is one, is an added token.
TokenizerModel parse_tokenizer_pair(const std::string& folder, const TokenizerPair& pair);

/// GPT-2's alphabet: a printable character for each byte, in UTF-8.
std::string byte_character(std::byte byte);

}  // namespace sprat::io
