// Tokens of texts, for comparison with another library: tests/system/torch/tokenizer_test.py.
// tokenizer_worker PATH: of each text on standard input, its length on a line and then its bytes,
// prints its tokens on a line. Ends with 1 if one does not come back by decoding.
#include <cstdio>
#include <iostream>
#include <string>

#include "sprat/error.hpp"
#include "sprat/io.hpp"

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
