#include "device/cuda_driver.hpp"

#include <dlfcn.h>

#include "comm/base/check.hpp"
#include "comm/base/config.hpp"

namespace sprat::device {
namespace {

template <class Function>
void find(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  need(function != nullptr, "the driver has no ", name,
       ": it is older than CUDA 12, or not NVIDIA's");
}

/// Never closed: streams and registrations live in it until the process ends.
CudaDriver load() {
  const char* const other = environment("SPRAT_CUDA_DRIVER");
  const char* const file = other == nullptr ? "libcuda.so.1" : other;
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  need(library != nullptr, "CUDA's driver cannot be loaded: ", library ? "" : dlerror());
  CudaDriver driver;
#define SPRAT_CUDA_CALL(member, exported, arguments) find(library, driver.member, #exported);
#include "device/cuda_calls.def"
  driver.check(driver.init(0), "cuInit");
  return driver;
}

FoundCudaDriver find_driver() {
  static CudaDriver driver;
  try {
    driver = load();
  } catch (const Error& error) {
    return {nullptr, error.what()};
  }
  return {&driver, ""};
}

}  // namespace

void CudaDriver::check(Result result, const char* call) const {
  if (result != cuda::success) {
    const char* words = nullptr;
    // A driver that does not know a number of its own leaves the words alone.
    error_string(result, &words);
    throw Error(ErrorCode::unavailable,
                text(call, ": ", words == nullptr ? "unknown error" : words, " (", result, ")"));
  }
}

const FoundCudaDriver& cuda_driver() {
  static const FoundCudaDriver found = find_driver();
  return found;
}

}  // namespace sprat::device
