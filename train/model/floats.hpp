// Arrays of f32 aligned for vectors and cache lines.
#pragma once

#include "comm/base/aligned.hpp"

namespace sprat::train {

using Floats = AlignedVector<float>;

}  // namespace sprat::train
