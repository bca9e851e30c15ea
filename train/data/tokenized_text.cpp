#include "train/data/tokenized_text.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "comm/base/hash.hpp"

namespace sprat::train {
namespace {

constexpr std::size_t piece_tokens = 1 << 16;

std::string_view characters(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TokenizedText::TokenizedText(std::vector<std::uint8_t> bytes)
    : tokens_(std::move(bytes)), checksum_(fnv1a_begin) {
  const Bytes& text = std::get<Bytes>(tokens_);
  size_ = bytes_ = text.size();
  checksum_ = fnv1a(std::as_bytes(std::span(text)));
}

TokenizedText::TokenizedText(Tokenizer tokenizer, const std::vector<std::string>& files,
                             const Tell& tell)
    : codec_(std::move(tokenizer)), checksum_(fnv1a_begin) {
  if (codec_.vocabulary() <= std::numeric_limits<std::uint16_t>::max() + 1) {
    tokens_.emplace<Narrow>();
  } else {
    tokens_.emplace<Wide>();
  }
  TokenStream stream(*codec_.tokenizer());
  read_text(files, [&](std::span<const std::uint8_t> piece) {
    bytes_ += piece.size();
    checksum_ = fnv1a(std::as_bytes(piece), checksum_);
    append(stream.append(characters(piece)));
    if (tell) {
      tell(*this);
    }
  });
  append(stream.finish());
}

void TokenizedText::append(std::span<const std::int32_t> tokens) {
  std::visit(
      [&](auto& to) {
        using Value = typename std::decay_t<decltype(to)>::value_type;
        for (const std::int32_t token : tokens) {
          to.push_back(static_cast<Value>(token));
        }
      },
      tokens_);
  size_ += tokens.size();
}

std::size_t TokenizedText::held_bytes() const {
  return std::visit([&](const auto& tokens) { return tokens.size() * sizeof(tokens[0]); }, tokens_);
}

void TokenizedText::copy(std::size_t begin, std::size_t count,
                         std::vector<std::int32_t>& to) const {
  std::visit(
      [&](const auto& tokens) {
        const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
        to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(count));
      },
      tokens_);
}

void TokenizedText::for_each_piece(std::size_t begin, std::size_t end,
                                   const std::function<void(std::string_view)>& visit) const {
  std::vector<std::int32_t> piece;
  for (std::size_t at = begin; at < end; at += piece.size()) {
    piece.clear();
    copy(at, std::min(piece_tokens, end - at), piece);
    visit(codec_.decode(piece));
  }
}

}  // namespace sprat::train
