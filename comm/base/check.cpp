#include "comm/base/check.hpp"

#include <iterator>

namespace sprat {

std::string joined_text(fmt::format_args args, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    const auto arg = args.get(i);
    fmt::vformat_to(std::back_inserter(out), "{}", fmt::format_args(&arg, 1));
  }
  return out;
}

}  // namespace sprat
