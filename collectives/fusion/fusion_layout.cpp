// Where the parameters of a Fusion lie: a pure function of what every rank knows.
#include "collectives/fusion/fusion_layout.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::collectives {
namespace {

/// Bytes of a parameter and of what follows up to the next one.
std::size_t slot_bytes(const FusionParameter& parameter) {
  constexpr std::size_t alignment = FusionLayout::alignment;
  return (parameter.count * size_of(parameter.dtype) + alignment - 1) / alignment * alignment;
}

void check_bytes(std::span<const FusionParameter> parameters) {
  // Sizes are subtracted from what is left, since their sum might wrap.
  std::size_t left = std::numeric_limits<std::ptrdiff_t>::max();
  for (const FusionParameter& parameter : parameters) {
    require(parameter.count < left / size_of(parameter.dtype) && slot_bytes(parameter) <= left,
            "parameters add up to more than memory can hold");
    left -= slot_bytes(parameter);
  }
}

std::vector<FusionBuffer> fill(std::span<const FusionParameter> parameters,
                               std::size_t bucket_bytes) {
  struct Open {
    std::vector<std::size_t> parameters;
    std::size_t bytes = 0;
  };
  std::map<DType, Open> open;
  std::vector<FusionBuffer> buffers;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const DType dtype = parameters[index].dtype;
    const std::size_t bytes = slot_bytes(parameters[index]);
    Open& buffer = open[dtype];
    // A parameter that is larger than a buffer gets one of its own.
    if (!buffer.parameters.empty() && buffer.bytes + bytes > bucket_bytes) {
      buffers.push_back({dtype, std::exchange(buffer, {}).parameters});
    }
    buffer.parameters.push_back(index);
    buffer.bytes += bytes;
  }
  for (auto& [dtype, buffer] : open) {
    buffers.push_back({dtype, std::move(buffer.parameters)});
  }
  // With gradients that come in the order of indices, no buffer then waits for a later one.
  std::ranges::sort(buffers, {}, [](const FusionBuffer& one) { return one.parameters.back(); });
  return buffers;
}

}  // namespace

FusionLayout plan_fusion(std::span<const FusionParameter> parameters, std::size_t bucket_bytes) {
  check_bytes(parameters);
  FusionLayout layout;
  layout.buffers = fill(parameters, bucket_bytes);
  layout.buffer_of.resize(parameters.size());
  layout.offset_of.resize(parameters.size());
  for (std::size_t index = 0; index < layout.buffers.size(); ++index) {
    FusionBuffer& buffer = layout.buffers[index];
    buffer.offset = layout.bytes;
    std::size_t end = buffer.offset;
    for (const std::size_t parameter : buffer.parameters) {
      layout.buffer_of[parameter] = index;
      layout.offset_of[parameter] = layout.bytes;
      end = layout.bytes + parameters[parameter].count * size_of(buffer.dtype);
      layout.bytes += slot_bytes(parameters[parameter]);
    }
    // Gaps between parameters are reduced too, so that the buffer is one call; what follows the
    // last one is not.
    buffer.count = (end - buffer.offset) / size_of(buffer.dtype);
  }
  return layout;
}

}  // namespace sprat::collectives
