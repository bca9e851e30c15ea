// Reads windows of tokens that count up, and says what it saw, a line each:
//   window_worker OPTIONS BATCHES       JSON as docs/data.md has it; 0: to the end
// `batches N`, `report JSON` (one for the whole run), `describe TEXT`, `error TEXT`. Ends with 1 if
// a window's tokens do not count up: then bytes are not those of the file.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "sprat/data.hpp"
#include "sprat/error.hpp"

namespace {

constexpr std::uint16_t tokens_until_0 = 65521;

bool counts_up(const sprat::DataBatch& batch) {
  const std::size_t length = batch.size() == 0 ? 0 : batch.elements().size() / 2 / batch.size();
  for (std::size_t row = 0; row < batch.size(); ++row) {
    const std::byte* const at = batch.elements().data() + 2 * row * length;
    std::uint16_t before = 0;
    std::memcpy(&before, at, sizeof before);
    for (std::size_t i = 1; i < length; ++i) {
      std::uint16_t token = 0;
      std::memcpy(&token, at + 2 * i, sizeof token);
      if (token != (before + 1) % tokens_until_0) {
        return false;
      }
      before = token;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "window_worker OPTIONS BATCHES\n");
    return 2;
  }
  const std::uint64_t most = std::strtoull(argv[2], nullptr, 10);
  std::uint64_t batches = 0;
  std::optional<sprat::Loader> loader;
  try {
    loader.emplace(sprat::parse_loader_options(argv[1]));
    for (; most == 0 || batches < most; ++batches) {
      const std::optional<sprat::DataBatch> batch = loader->next();
      if (!batch) {
        break;
      }
      if (!counts_up(*batch)) {
        std::printf("batch %llu does not count up\n", static_cast<unsigned long long>(batches));
        return 1;
      }
    }
  } catch (const sprat::Error& error) {
    std::printf("error %s\n", error.what());
  }
  std::printf("batches %llu\n", static_cast<unsigned long long>(batches));
  if (loader) {
    std::printf("report %s\n", loader->report().json.c_str());
    std::printf("describe %s\n", loader->describe().c_str());
  }
  std::fflush(stdout);
  return 0;
}
