// Where PyTorch or the machine that built this has no CUDA.
#include "plugins/torch/native/device_lane.hpp"

namespace sprat::pytorch {

bool serves(at::DeviceType) { return false; }

std::unique_ptr<DeviceLane> open_device_lane(at::DeviceType type) {
  C10_THROW_ERROR(ValueError,
                  c10::str("sprat.torch was built without ", type,
                           "; move the tensors to the CPU, or build it where the CUDA toolkit is "
                           "found, as by CUDACXX=/usr/local/cuda/bin/nvcc pip install ..."));
}

}  // namespace sprat::pytorch
