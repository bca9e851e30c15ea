#include "memory/overlaps.hpp"

namespace sprat::fsdp {

void Overlaps::meet(const std::vector<bool>& alive) {
  for (std::size_t a = 0; a < units_; ++a) {
    for (std::size_t b = 0; alive[a] && b < units_; ++b) {
      pairs_[a * units_ + b] = pairs_[a * units_ + b] || alive[b];
    }
  }
}

}  // namespace sprat::fsdp
