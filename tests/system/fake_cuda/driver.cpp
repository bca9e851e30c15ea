// The driver's calls, by their exported names, as Sprat and programs use them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "tests/system/fake_cuda/fake_cuda.h"
#include "tests/system/fake_cuda/machine.hpp"

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))
// What every call begins with: a broken device, a thread without one and host functions are told.
#define FAKE_CUDA_ENTER() \
  if (const int refused = fake_cuda::Machine::get().enter(); refused != 0) return refused

using fake_cuda::Event;
using fake_cuda::FakeDevice;
using fake_cuda::Kind;
using fake_cuda::Machine;
using fake_cuda::Piece;
using fake_cuda::Stream;

namespace {

Machine& machine() { return Machine::get(); }

void* pointer(unsigned long long address) { return reinterpret_cast<void*>(address); }

}  // namespace

FAKE_CUDA_API void fake_cuda_seed(unsigned seed) { machine().seed(seed); }
FAKE_CUDA_API void fake_cuda_refuse_copy(int n) { machine().refuse_copy(n); }
FAKE_CUDA_API void fake_cuda_break_at_copy(int n) { machine().break_at_copy(n); }
FAKE_CUDA_API void fake_cuda_mend(void) { machine().mend(); }
FAKE_CUDA_API void fake_cuda_lock_in_waits(int on) { machine().lock_in_waits(on != 0); }
FAKE_CUDA_API int fake_cuda_waits(void) { return machine().waits(); }
FAKE_CUDA_API int fake_cuda_pieces(void) { return machine().pieces(); }

FAKE_CUDA_API int cuInit(unsigned) { return fake_cuda::success; }

FAKE_CUDA_API int cuDriverGetVersion(int* version) {
  *version = 13000;
  return fake_cuda::success;
}

FAKE_CUDA_API int cuGetErrorString(int code, const char** words) {
  switch (code) {
    case fake_cuda::success:
      *words = "no error";
      break;
    case fake_cuda::invalid_value:
      *words = "invalid argument";
      break;
    case fake_cuda::illegal_address:
      *words = "an illegal memory access was encountered";
      break;
    case fake_cuda::not_permitted:
      *words = "operation not permitted";
      break;
    default:
      *words = "an error of the stand-in";
  }
  return fake_cuda::success;
}

FAKE_CUDA_API int cuDeviceGetCount(int* count) {
  *count = machine().device_count();
  return fake_cuda::success;
}

FAKE_CUDA_API int cuDeviceGet(int* device, int index) {
  *device = index;
  return machine().device(index) == nullptr ? 101 : fake_cuda::success;
}

FAKE_CUDA_API int cuDeviceGetName(char* name, int bytes, int) {
  std::snprintf(name, static_cast<std::size_t>(bytes), "stand-in");
  return fake_cuda::success;
}

FAKE_CUDA_API int cuDeviceGetPCIBusId(char* address, int bytes, int device) {
  std::snprintf(address, static_cast<std::size_t>(bytes), "0000:%02x:00.0", device + 1);
  return fake_cuda::success;
}

FAKE_CUDA_API int cuDeviceGetAttribute(int* value, int, int) {
  *value = 1;
  return fake_cuda::success;
}

FAKE_CUDA_API int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = machine().device(device);
  return *context == nullptr ? 101 : fake_cuda::success;
}

FAKE_CUDA_API int cuDevicePrimaryCtxRelease_v2(int) { return fake_cuda::success; }

FAKE_CUDA_API int cuCtxGetCurrent(void** context) {
  *context = machine().current();
  return fake_cuda::success;
}

FAKE_CUDA_API int cuCtxSetCurrent(void* context) {
  auto& contexts = machine().contexts();
  if (!contexts.empty()) {
    contexts.pop_back();
  }
  if (context != nullptr) {
    contexts.push_back(static_cast<FakeDevice*>(context));
  }
  return fake_cuda::success;
}

FAKE_CUDA_API int cuCtxPushCurrent_v2(void* context) {
  machine().contexts().push_back(static_cast<FakeDevice*>(context));
  return fake_cuda::success;
}

FAKE_CUDA_API int cuCtxPopCurrent_v2(void** context) {
  if (machine().contexts().empty()) {
    return fake_cuda::invalid_context;
  }
  *context = machine().current();
  machine().contexts().pop_back();
  return fake_cuda::success;
}

FAKE_CUDA_API int cuCtxGetDevice(int* device) {
  if (machine().current() == nullptr) {
    return fake_cuda::invalid_context;
  }
  *device = machine().current()->index;
  return fake_cuda::success;
}

FAKE_CUDA_API int cuThreadExchangeStreamCaptureMode(int* mode) {
  thread_local int now = 0;
  std::swap(now, *mode);
  return fake_cuda::success;
}

FAKE_CUDA_API int cuMemAlloc_v2(unsigned long long* memory, std::size_t bytes) {
  FAKE_CUDA_ENTER();
  void* made = nullptr;
  const int code = machine().allocate(&made, bytes, Kind::device);
  *memory = reinterpret_cast<unsigned long long>(made);
  return code;
}

FAKE_CUDA_API int cuMemFree_v2(unsigned long long memory) {
  return machine().release(pointer(memory));
}

FAKE_CUDA_API int cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  FAKE_CUDA_ENTER();
  return machine().pin(memory, bytes);
}

FAKE_CUDA_API int cuMemHostUnregister(void* memory) { return machine().unpin(memory); }

FAKE_CUDA_API int cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                                         unsigned long long address) {
  FAKE_CUDA_ENTER();
  const Piece* const piece = machine().find(pointer(address), 1);
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case 2: {  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE: 1 host, 2 device
        const bool host = piece != nullptr && piece->kind == Kind::pinned;
        *static_cast<unsigned*>(values[i]) = piece == nullptr ? 0 : host ? 1 : 2;
        break;
      }
      case 8:  // CU_POINTER_ATTRIBUTE_IS_MANAGED
        *static_cast<unsigned*>(values[i]) = piece != nullptr && piece->kind == Kind::managed;
        break;
      case 9:  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        *static_cast<int*>(values[i]) = piece == nullptr ? -2 : piece->device;
        break;
      default:
        return fake_cuda::invalid_value;
    }
  }
  return fake_cuda::success;
}

FAKE_CUDA_API int cuStreamCreate(void** stream, unsigned flags) {
  FAKE_CUDA_ENTER();
  *stream = machine().make_stream(*machine().current(), (flags & 1) == 0);
  return fake_cuda::success;
}

FAKE_CUDA_API int cuStreamDestroy_v2(void* stream) {
  return machine().destroy_stream(static_cast<Stream*>(stream));
}

FAKE_CUDA_API int cuStreamSynchronize(void* handle) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return stream == nullptr ? fake_cuda::invalid_handle : machine().wait_for(*stream);
}

FAKE_CUDA_API int cuStreamQuery(void* handle) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  if (stream == nullptr) {
    return fake_cuda::invalid_handle;
  }
  return machine().done(*stream);
}

FAKE_CUDA_API int cuStreamIsCapturing(void* handle, int* status) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  if (stream == nullptr) {
    return fake_cuda::invalid_handle;
  }
  *status = machine().capturing(*stream) ? 1 : 0;
  return fake_cuda::success;
}

FAKE_CUDA_API int cuStreamWaitEvent(void* handle, void* event, unsigned) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return stream == nullptr ? fake_cuda::invalid_handle
                           : machine().wait_event(*stream, *static_cast<Event*>(event));
}

FAKE_CUDA_API int cuStreamWaitValue32_v2(void* handle, unsigned long long address,
                                         std::uint32_t value, unsigned flags) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  if (stream == nullptr || flags != 0 || machine().find(pointer(address), 4) == nullptr) {
    return stream == nullptr ? fake_cuda::invalid_handle : fake_cuda::invalid_value;
  }
  FakeDevice& device = stream->device;
  return machine().queue(*stream, [&device, address, value]() -> int {
    while (!machine().over(device)) {
      if (machine().find(pointer(address), 4) == nullptr) {
        return fake_cuda::illegal_address;
      }
      const std::uint32_t now = std::atomic_ref(*static_cast<std::uint32_t*>(pointer(address)))
                                    .load(std::memory_order_acquire);
      if (static_cast<std::int32_t>(now - value) >= 0) {
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return fake_cuda::success;
  });
}

FAKE_CUDA_API int cuStreamWriteValue32_v2(void* handle, unsigned long long address,
                                          std::uint32_t value, unsigned) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  if (stream == nullptr) {
    return fake_cuda::invalid_handle;
  }
  return machine().queue(*stream, [address, value]() -> int {
    if (machine().find(pointer(address), 4) == nullptr) {
      return fake_cuda::illegal_address;
    }
    std::atomic_ref(*static_cast<std::uint32_t*>(pointer(address)))
        .store(value, std::memory_order_release);
    return fake_cuda::success;
  });
}

FAKE_CUDA_API int cuLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  if (stream == nullptr) {
    return fake_cuda::invalid_handle;
  }
  return machine().queue(*stream, [function, argument]() -> int {
    Machine::in_host_function() = true;
    function(argument);
    Machine::in_host_function() = false;
    return fake_cuda::success;
  });
}

FAKE_CUDA_API int cuEventCreate(void** event, unsigned) {
  FAKE_CUDA_ENTER();
  *event = new Event{machine().current()->index, nullptr, 0};
  return fake_cuda::success;
}

FAKE_CUDA_API int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return fake_cuda::success;
}

FAKE_CUDA_API int cuEventRecord(void* event, void* handle) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return stream == nullptr ? fake_cuda::invalid_handle
                           : machine().record(*static_cast<Event*>(event), *stream);
}

FAKE_CUDA_API int cuEventQuery(void* event) {
  FAKE_CUDA_ENTER();
  return machine().reached(*static_cast<Event*>(event));
}

FAKE_CUDA_API int cuEventSynchronize(void* event) {
  FAKE_CUDA_ENTER();
  return machine().wait_for(*static_cast<Event*>(event));
}

FAKE_CUDA_API int cuMemcpyAsync(unsigned long long to, unsigned long long from, std::size_t bytes,
                                void* handle) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return stream == nullptr ? fake_cuda::invalid_handle
                           : machine().copy(*stream, pointer(to), pointer(from), bytes);
}
