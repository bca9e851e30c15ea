#include "io/tokenizer/model.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/strict_json.hpp"

namespace sprat::io {
namespace {

using Json = nlohmann::json;
constexpr int deepest = 16;  // tokenizer.json needs 5
constexpr int bytes_there_are = 256;

/// Names come from foreign files: JSON's quoting shows any of them on one line.
std::string shown(std::string_view name) {
  return Json(name.substr(0, 60)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

Json parse_model_json(const std::string& file, std::string_view text) {
  JsonKeys keys;
  const auto note = [&](int depth, Json::parse_event_t event, Json& value) {
    need(depth <= deepest, file, " is nested too deeply for a tokenizer");
    const auto again = keys.repeated(event, value);
    need(!again, file, " gives the key ", shown(again.value_or("")), " twice");
    return true;
  };
  try {
    Json root = Json::parse(text.begin(), text.end(), note);
    need(root.is_object(), file, " is JSON, but no object");
    return root;
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::unavailable,
                sprat::text(file, " is no JSON: ", reason_of(error).substr(0, 200)));
  }
}

std::uint32_t code_point_of(int byte) {
  // Bytes that print in Latin-1 stand for themselves; the others are numbered from 256 on.
  const auto prints = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
  };
  if (prints(byte)) {
    return static_cast<std::uint32_t>(byte);
  }
  std::uint32_t others = 0;
  for (int before = 0; before < byte; ++before) {
    others += prints(before) ? 0 : 1;
  }
  return bytes_there_are + others;
}

/// A vocabulary while it is read: tokens as the files spell them.
struct Spelling {
  std::string file;
  std::unordered_map<std::string, std::int32_t> number;
  std::unordered_map<std::string, char> byte_of_character;

  explicit Spelling(std::string name) : file(std::move(name)) {
    for (int byte = 0; byte < bytes_there_are; ++byte) {
      byte_of_character[byte_character(static_cast<std::byte>(byte))] = static_cast<char>(byte);
    }
  }

  /// The bytes that a token stands for. One with a character outside of the alphabet, which no
  /// merge makes, stands for itself.
  std::string bytes_of(const std::string& token) const {
    std::string bytes;
    for (std::size_t at = 0; at < token.size();) {
      // All characters of the alphabet have one or two bytes in UTF-8.
      const std::size_t length = static_cast<unsigned char>(token[at]) < 0x80 ? 1 : 2;
      const auto found = byte_of_character.find(token.substr(at, length));
      if (found == byte_of_character.end()) {
        return token;
      }
      bytes += found->second;
      at += length;
    }
    return bytes;
  }

  std::int32_t number_of(const std::string& token, std::size_t merge) const {
    const auto found = number.find(token);
    if (found == number.end()) {
      throw Error(ErrorCode::unavailable, text(file, ": merge ", merge, " needs the token ",
                                               shown(token), ", which the vocabulary lacks"));
    }
    return found->second;
  }
};

std::int32_t token_number(const std::string& file, const std::string& token, const Json& value) {
  if (!value.is_number_integer() || value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
    throw Error(ErrorCode::unavailable,
                text(file, ": the number of token ", shown(token), " is ", shown(value.dump()),
                     "; it is a whole number, 0 or more"));
  }
  return value.get<std::int32_t>();
}

void read_vocabulary(const Json& vocabulary, Spelling& spelling) {
  need(vocabulary.is_object(), spelling.file, ": the vocabulary is no object");
  for (const auto& [token, value] : vocabulary.items()) {
    spelling.number[token] = token_number(spelling.file, token, value);
  }
}

/// Where the tokens' numbers are 0 to n - 1, each once, their bytes by number.
std::vector<std::string> tokens_by_number(const Spelling& spelling,
                                          const std::vector<AddedToken>& added) {
  std::unordered_map<std::int32_t, std::string> bytes;
  for (const auto& [token, number] : spelling.number) {
    const bool first = bytes.emplace(number, spelling.bytes_of(token)).second;
    need(first, spelling.file, ": two tokens have the number ", number);
  }
  for (const AddedToken& token : added) {
    const auto known = spelling.number.find(token.content);
    need(known == spelling.number.end() || known->second == token.token, spelling.file,
         ": the added token ", shown(token.content), " has the number ", token.token,
         ", and another in the vocabulary");
    const bool first = bytes.emplace(token.token, token.content).second;
    need(first || known != spelling.number.end(), spelling.file, ": two tokens have the number ",
         token.token);
    bytes[token.token] = token.content;
  }
  std::vector<std::string> tokens(bytes.size());
  for (auto& [number, text] : bytes) {
    need(static_cast<std::size_t>(number) < tokens.size(), spelling.file,
         ": a token has the number ", number, ", but there are ", tokens.size(),
         " tokens; numbers have no gaps");
    tokens[static_cast<std::size_t>(number)] = std::move(text);
  }
  return tokens;
}

std::vector<std::int32_t> read_byte_tokens(const Spelling& spelling) {
  std::vector<std::int32_t> tokens;
  for (int byte = 0; byte < bytes_there_are; ++byte) {
    const auto found = spelling.number.find(byte_character(static_cast<std::byte>(byte)));
    need(found != spelling.number.end(), spelling.file, ": the vocabulary lacks the byte ", byte,
         ", written ", shown(byte_character(static_cast<std::byte>(byte))),
         "; train it with the initial alphabet ByteLevel.alphabet()");
    tokens.push_back(found->second);
  }
  return tokens;
}

TokenMerge merge_of(const Spelling& spelling, std::size_t number, const std::string& left,
                    const std::string& right) {
  return {.left = spelling.number_of(left, number),
          .right = spelling.number_of(right, number),
          .merged = spelling.number_of(left + right, number)};
}

/// "a b" as two tokens.
TokenMerge merge_of_line(const Spelling& spelling, std::size_t number, std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    throw Error(ErrorCode::unavailable, text(spelling.file, ": merge ", number, " is ", shown(line),
                                             "; it is two tokens with a space between"));
  }
  return merge_of(spelling, number, std::string(line.substr(0, space)),
                  std::string(line.substr(space + 1)));
}

std::vector<TokenMerge> read_merges(const Json& merges, const Spelling& spelling) {
  need(merges.is_array(), spelling.file, ": model.merges is no array");
  std::vector<TokenMerge> out;
  for (const Json& merge : merges) {
    const std::size_t number = out.size();
    if (merge.is_string()) {
      out.push_back(merge_of_line(spelling, number, merge.get_ref<const std::string&>()));
      continue;
    }
    need(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
         spelling.file, ": merge ", number, " is neither a text nor two of them");
    out.push_back(
        merge_of(spelling, number, merge[0].get<std::string>(), merge[1].get<std::string>()));
  }
  return out;
}

/// An object's value; null where there is none.
const Json& value_of(const Json& object, const char* key) {
  static const Json nothing;
  const auto found = object.find(key);
  return found == object.end() ? nothing : *found;
}

bool says_no(const Json& value) {
  return value.is_null() || value == false || value == 0 || value == "";
}

bool flag_of(const std::string& file, const Json& object, const char* key, bool otherwise) {
  const Json& value = value_of(object, key);
  need(value.is_null() || value.is_boolean(), file, ": ", key, " is neither true nor false");
  return value.is_null() ? otherwise : value.get<bool>();
}

std::vector<AddedToken> read_added(const std::string& file, const Json& list) {
  std::vector<AddedToken> added;
  need(list.is_null() || list.is_array(), file, ": added_tokens is no array");
  for (const Json& entry : list) {
    const Json& content = entry.is_object() ? value_of(entry, "content") : entry;
    need(entry.is_object() && content.is_string() && content != "", file,
         ": an added token has no content");
    const auto& text = content.get_ref<const std::string&>();
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      need(!flag_of(file, entry, key, false), file, ": the added token ", shown(text), " has ", key,
           ", which is not built; only tokens that are found anywhere, as they are, work");
    }
    added.push_back({.content = text,
                     .token = token_number(file, text, value_of(entry, "id")),
                     .normalized = flag_of(file, entry, "normalized", false)});
  }
  return added;
}

/// Refuses what would make other tokens than GPT-2's way does.
void check_kind(const std::string& file, const Json& root, const Json& model) {
  const auto type = [](const Json& part) {
    return part.is_object() ? value_of(part, "type") : part;
  };
  for (const char* key : {"normalizer", "truncation", "padding"}) {
    need(value_of(root, key).is_null(), file, " has a ", key,
         ", which is not built; remove it (set "
         "it to null) if the text needs none");
  }
  const Json& words = value_of(root, "pre_tokenizer");
  need(type(words) == "ByteLevel" && flag_of(file, words, "use_regex", true), file,
       ": the pre_tokenizer is ", shown(type(words).dump()),
       ", which is not built; only ByteLevel with its own regular expression is, as GPT-2 has it");
  const Json& decoder = type(value_of(root, "decoder"));
  need(decoder.is_null() || decoder == "ByteLevel", file, ": the decoder is ",
       shown(decoder.dump()), ", which is not built; only ByteLevel is");
  need(type(model).is_null() || type(model) == "BPE", file, ": the model is ",
       shown(type(model).dump()), ", which is not built; only BPE is");
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback", "ignore_merges"}) {
    need(says_no(value_of(model, key)), file, ": model.", key, " is ",
         shown(value_of(model, key).dump()), ", which is not built; GPT-2 has none");
  }
}

TokenizerModel assembled(const Spelling& spelling, std::vector<AddedToken> added) {
  TokenizerModel model;
  model.tokens = tokens_by_number(spelling, added);
  model.byte_tokens = read_byte_tokens(spelling);
  model.added = std::move(added);
  return model;
}

}  // namespace

std::string byte_character(std::byte byte) {
  const std::uint32_t code = code_point_of(std::to_integer<int>(byte));
  if (code < 0x80) {
    return {static_cast<char>(code)};
  }
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

TokenizerModel parse_tokenizer_json(const std::string& file, std::string_view json) {
  const Json root = parse_model_json(file, json);
  const Json& model = value_of(root, "model");
  need(model.is_object(), file, " has no object \"model\"; is it a tokenizer.json?");
  check_kind(file, root, model);
  Spelling spelling(file);
  read_vocabulary(value_of(model, "vocab"), spelling);
  TokenizerModel out = assembled(spelling, read_added(file, value_of(root, "added_tokens")));
  out.merges = read_merges(value_of(model, "merges"), spelling);
  out.prefix_space = flag_of(file, value_of(root, "pre_tokenizer"), "add_prefix_space", true);
  return out;
}

TokenizerModel parse_tokenizer_pair(const std::string& folder, const TokenizerPair& pair) {
  Spelling spelling(folder + "/vocab.json");
  read_vocabulary(parse_model_json(spelling.file, pair.vocabulary), spelling);
  std::vector<AddedToken> added;
  constexpr const char* end_of_text = "<|endoftext|>";
  if (const auto found = spelling.number.find(end_of_text); found != spelling.number.end()) {
    added.push_back({.content = end_of_text, .token = found->second});
  }
  TokenizerModel out = assembled(spelling, std::move(added));
  spelling.file = folder + "/merges.txt";
  for (std::string_view rest = pair.merges; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (!line.empty() && !line.starts_with("#version")) {
      out.merges.push_back(merge_of_line(spelling, out.merges.size(), line));
    }
  }
  return out;
}

}  // namespace sprat::io
