// The clipping factor.
#include "fsdp/clip.hpp"

#include <algorithm>

namespace sprat::fsdp {

double clip_factor(double norm, float limit) {
  if (!(limit > 0)) {
    return 1;
  }
  return std::min(1.0,
                  static_cast<double>(limit) / (norm + 1e-6));  // 1e-6 as in torch and Megatron
}

}  // namespace sprat::fsdp
