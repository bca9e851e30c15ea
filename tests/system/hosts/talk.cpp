// Two ranks that tell each other what a listener would know again (overhear.py): a block of 16
// bytes over and over, in messages of 64 B to 4 MiB.
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

#include "sprat/communicator.hpp"

namespace {

std::vector<std::byte> block_over_and_over(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t at = 0; at < bytes; ++at) {
    data[at] = static_cast<std::byte>(37 * (at % 16) + 11);
  }
  return data;
}

}  // namespace

int main() {
  try {
    auto world = sprat::Communicator::join();
    for (const std::size_t bytes : {64u, 4096u, 1u << 20, 4u << 20}) {
      const auto sent = block_over_and_over(bytes);
      for (int root = 0; root < 2; ++root) {
        auto data = world.rank() == root ? sent : std::vector<std::byte>(bytes);
        world.broadcast({.data = data.data(), .count = bytes, .dtype = sprat::DType::u8}, root)
            .wait();
        if (data != sent) {
          std::fprintf(stderr, "%zu bytes from rank %d came wrong\n", bytes, root);
          return 1;
        }
      }
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
