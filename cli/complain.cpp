#include "cli/complain.hpp"

#include <algorithm>
#include <cstdio>
#include <new>
#include <string>

namespace sprat::cli {

void complain(std::string_view message) noexcept {
  try {
    std::string line = "sprat: ";
    for (std::size_t at = 0; at < message.size();) {
      const std::size_t end = std::min(message.find('\n', at), message.size());
      // A list's first line ends in a colon already, as "differ in what every rank must agree on:".
      line += at == 0 ? "" : line.back() == ':' ? " " : "; ";
      line += message.substr(at, end - at);
      at = std::min(message.find_first_not_of("\n ", end), message.size());
    }
    // Not fmt::print(), which throws where standard error is closed: main() complains of the last
    // exception, and another one on top would end the process by a signal instead of its exit code.
    static_cast<void>(std::fputs((line + "\n").c_str(), stderr));
  } catch (const std::bad_alloc&) {
    static_cast<void>(std::fputs("sprat: no memory is left\n", stderr));
  }
}

}  // namespace sprat::cli
