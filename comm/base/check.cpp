#include "comm/base/check.hpp"

namespace sprat {

// Not inline: every file that says require() would otherwise compile fmt's formatting whole, which
// takes seconds.
std::string joined_text(fmt::format_args args, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    const auto arg = args.get(i);
    out += fmt::vformat("{}", fmt::format_args(&arg, 1));
  }
  return out;
}

}  // namespace sprat
