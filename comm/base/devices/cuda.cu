// A CUDA device: its memory and one non-blocking stream.
#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <type_traits>

#include "comm/base/device.hpp"
#include "sprat/error.hpp"

namespace sprat {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw Error(ErrorCode::unavailable, std::string(what) + ": " + cudaGetErrorString(status));
  }
}

struct StreamDeleter {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamDeleter>;

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    name_ = "cuda:" + std::to_string(index) + " (" + properties.name + ")";
    select();
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    stream_.reset(stream);
  }

  const std::string& name() const noexcept override { return name_; }

  void* allocate(std::size_t bytes) override {
    select();
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
  }

  void free(void* memory) noexcept override { cudaFree(memory); }

  void copy(void* to, const void* from, std::size_t bytes) override {
    select();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()), "cudaMemcpyAsync");
  }

  void synchronize() override {
    check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  }

 private:
  /// The current device is a property of the calling thread.
  void select() const { check(cudaSetDevice(index_), "cudaSetDevice"); }

  int index_;
  std::string name_;
  Stream stream_;
};

/// Zero without a driver: a build with CUDA runs on machines without a GPU.
int count_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::unique_ptr<Device> open(int index) { return std::make_unique<CudaDevice>(index); }

}  // namespace

extern const DeviceKind cuda_device;
const DeviceKind cuda_device = {"cuda", count_devices, open};

}  // namespace sprat
