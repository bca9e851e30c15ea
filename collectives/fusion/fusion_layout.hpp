// Where the parameters of a Fusion lie: a pure function of what every rank knows.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sprat/fusion.hpp"

namespace sprat::collectives {

/// Parameters that are reduced together.
struct FusionBuffer {
  DType dtype = DType::f32;
  std::vector<std::size_t> parameters = {};  ///< Ascending.
  std::size_t offset = 0;                    ///< Bytes into the memory.
  std::size_t count = 0;                     ///< Elements, with those between parameters.
  /// One parameter alone can be reduced wherever it is.
  bool fuses() const { return parameters.size() > 1; }
};

struct FusionLayout {
  static constexpr std::size_t alignment = 128;  ///< Bytes; of every parameter.

  /// In the order in which they start: by their last parameters, so that none waits for a later one
  /// when parameters come in order.
  std::vector<FusionBuffer> buffers;
  std::vector<std::size_t> buffer_of;  ///< By parameter.
  std::vector<std::size_t> offset_of;  ///< By parameter: bytes into the memory.
  std::size_t bytes = 0;               ///< Of all buffers together.
};

/// Fills, for each dtype, one buffer after the other with parameters in the order of their indices.
/// Throws Error{invalid_argument} if memory cannot hold that many bytes.
FusionLayout plan_fusion(std::span<const FusionParameter> parameters, std::size_t bucket_bytes);

}  // namespace sprat::collectives
