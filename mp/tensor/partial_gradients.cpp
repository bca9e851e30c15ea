// Sums over rows that are dealt to ranks.
#include <algorithm>
#include <exception>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/vector.hpp"
#include "mp/tensor/row_plan.hpp"

namespace sprat::tensor {
namespace {

SPRAT_CLONES void add(std::size_t count, const float* sums, float* gradient) {
  for (std::size_t i = 0; i < count; ++i) {
    gradient[i] += sums[i];
  }
}

}  // namespace

PartialGradients::PartialGradients(Group& group, std::span<float> workspace)
    : group_(group), workspace_(workspace) {}

PartialGradients::~PartialGradients() {
  try {
    work_.wait();
  } catch (const std::exception& error) {
    log().debug("partial gradients were given up: {}", error.what());
  }
}

std::span<float> PartialGradients::of(std::span<float> gradient) {
  if (!rows_are_dealt(group_.how())) {
    return gradient;
  }
  require(workspace_.size() - used_ >= gradient.size(), "partial gradients have a workspace of ",
          workspace_.size(), " elements, ", used_, " of them in use, and need ", gradient.size(),
          " more; give it as many as all gradients together");
  const std::span<float> partial = workspace_.subspan(used_, gradient.size());
  std::ranges::fill(partial, 0.0f);
  used_ += gradient.size();
  sums_.push_back({.partial = partial, .gradient = gradient});
  return partial;
}

// One sum for all: each alone would be too short to be worth its way.
void PartialGradients::start() {
  if (used_ > 0) {
    work_ = group_.sum(workspace_.first(used_));
  }
}

void PartialGradients::finish() {
  work_.wait();
  for (const Sum& sum : sums_) {
    add(sum.partial.size(), sum.partial.data(), sum.gradient.data());
  }
  sums_.clear();
  used_ = 0;
}

}  // namespace sprat::tensor
