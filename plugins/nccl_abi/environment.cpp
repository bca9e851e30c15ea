// The drop-in's own variables.
#include "plugins/nccl_abi/environment.hpp"

#include <array>

#include "comm/base/config.hpp"
#include "plugins/nccl_abi/errors.hpp"

namespace sprat::nccl {
namespace {

struct Version {
  std::string_view text;
  int code;
};
/// The first is the one that torch 2.11 brings, the last the newest whose names functions.def has.
constexpr std::array versions = {Version{"2.28.9", 22809}, Version{"2.30.7", 23007},
                                 Version{"2.32.3", 23203}};

}  // namespace

std::optional<int> version_code(std::string_view text) {
  for (const Version& version : versions) {
    if (version.text == text) {
      return version.code;
    }
  }
  return std::nullopt;
}

int answered_version() {
  const char* const text = environment("SPRAT_NCCL_VERSION");
  if (text == nullptr || *text == '\0') {
    return versions.front().code;
  }
  if (const auto code = version_code(text)) {
    return *code;
  }
  refuse(ncclInvalidArgument, "SPRAT_NCCL_VERSION is \"" + std::string(text) +
                                  "\"; it must be 2.28.9, 2.30.7 or 2.32.3");
}

}  // namespace sprat::nccl
