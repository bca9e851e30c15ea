// Says what Sprat finds out of files, as `sprat io layout --json` does. With --read a byte of each
// is read first.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cli/io/layout.hpp"
#include "sprat/error.hpp"

int main(int argc, char** argv) {
  std::vector<std::string> paths(argv + 1, argv + argc);
  const bool read_first = !paths.empty() && paths.front() == "--read";
  if (read_first) {
    paths.erase(paths.begin());
  }
  try {
    for (const std::string& path : paths) {
      const int descriptor = read_first ? open(path.c_str(), O_RDONLY | O_CLOEXEC) : -1;
      char byte = 0;
      if (descriptor >= 0 && pread(descriptor, &byte, 1, 0) != 1) {
        std::perror(path.c_str());
        return 1;
      }
      close(descriptor);
    }
    std::fputs(sprat::cli::layouts_json(*sprat::io::system_probe(""), paths).c_str(), stdout);
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
