// libFuzzer's address to the targets: fuzz --target=NAME [libFuzzer's options] CORPUS ...
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/system/fuzz/targets.hpp"

namespace {

const sprat::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int at = 1; at < *argc; ++at) {
    for (const auto& target : sprat::fuzz::all_targets()) {
      if ((*argv)[at] == std::string("--target=") + target.name) {
        chosen = &target;
      }
    }
  }
  if (chosen == nullptr) {
    std::fprintf(stderr, "say --target= and one of:");
    for (const auto& target : sprat::fuzz::all_targets()) {
      std::fprintf(stderr, " %s", target.name);
    }
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  chosen->run(std::as_bytes(std::span(data, bytes)));
  return 0;
}
