// Tokens of texts, for comparison with another library: tests/system/torch/tokenizer_test.py.
// tokenizer_worker PATH: of each text on standard input, its length on a line and then its bytes,
// prints its tokens on a line. Ends with 1 if one does not come back by decoding, or if its pieces
// have other tokens.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/io.hpp"

namespace {

std::vector<std::int32_t> in_pieces(const sprat::Tokenizer& tokenizer, std::string_view text) {
  constexpr std::size_t piece = 5;
  sprat::TokenStream stream(tokenizer);
  std::vector<std::int32_t> tokens;
  const auto add = [&](const std::vector<std::int32_t>& some) {
    tokens.insert(tokens.end(), some.begin(), some.end());
  };
  for (std::size_t at = 0; at < text.size(); at += piece) {
    add(stream.append(text.substr(at, piece)));
  }
  add(stream.finish());
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tokenizer_worker PATH\n");
    return 2;
  }
  try {
    const sprat::Tokenizer tokenizer = sprat::read_tokenizer(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      std::string text(std::stoull(line), '\0');
      std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
      const auto tokens = tokenizer.encode(text);
      if (tokenizer.decode(tokens) != text) {
        std::fprintf(stderr, "a text of %zu bytes does not come back\n", text.size());
        return 1;
      }
      if (in_pieces(tokenizer, text) != tokens) {
        std::fprintf(stderr, "a text of %zu bytes has other tokens in pieces\n", text.size());
        return 1;
      }
      for (const std::int32_t token : tokens) {
        std::cout << token << ' ';
      }
      std::cout << '\n';
    }
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
