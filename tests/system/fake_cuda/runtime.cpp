// The runtime's calls, for programs that are written against it: on the same machine as the
// driver's.
#include <cstring>
#include <utility>

#include "tests/system/fake_cuda/machine.hpp"

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))
#define FAKE_CUDA_ENTER() \
  if (const int refused = enter(); refused != 0) return keep(refused)

using fake_cuda::Event;
using fake_cuda::FakeDevice;
using fake_cuda::Kind;
using fake_cuda::Machine;
using fake_cuda::Stream;

namespace {

Machine& machine() { return Machine::get(); }

int& last_error() {
  thread_local int last = 0;
  return last;
}

int keep(int code) {
  if (code != fake_cuda::success && code != fake_cuda::not_ready) {
    last_error() = code;
  }
  return code;
}

/// A thread that chose no device has the first one.
int enter() {
  if (machine().current() == nullptr && machine().device(0) != nullptr) {
    machine().contexts().push_back(machine().device(0));
  }
  return machine().enter();
}

int copy_and_wait(void* to, const void* from, std::size_t bytes) {
  Stream& stream = *machine().stream(nullptr);
  const int code = machine().copy(stream, to, from, bytes);
  return code == fake_cuda::success ? machine().wait_for(stream) : code;
}

}  // namespace

FAKE_CUDA_API int cudaGetDeviceCount(int* count) {
  *count = machine().device_count();
  return *count > 0 ? fake_cuda::success : keep(100);
}

FAKE_CUDA_API int cudaSetDevice(int index) {
  FakeDevice* const device = machine().device(index);
  if (device == nullptr) {
    return keep(101);
  }
  machine().contexts().assign(1, device);
  return fake_cuda::success;
}

FAKE_CUDA_API int cudaGetDevice(int* index) {
  *index = machine().current() == nullptr ? 0 : machine().current()->index;
  return fake_cuda::success;
}

FAKE_CUDA_API int cudaDeviceSynchronize(void) {
  FAKE_CUDA_ENTER();
  return keep(machine().wait_for_all(*machine().current()));
}

FAKE_CUDA_API int cudaGetLastError(void) { return std::exchange(last_error(), 0); }
FAKE_CUDA_API int cudaPeekAtLastError(void) { return last_error(); }

FAKE_CUDA_API const char* cudaGetErrorString(int code) {
  return code == fake_cuda::success ? "no error" : "an error of the stand-in";
}

FAKE_CUDA_API const char* cudaGetErrorName(int code) {
  return code == fake_cuda::success ? "cudaSuccess" : "cudaErrorOfTheStandIn";
}

FAKE_CUDA_API int cudaMalloc(void** memory, std::size_t bytes) {
  FAKE_CUDA_ENTER();
  return keep(machine().allocate(memory, bytes, Kind::device));
}

FAKE_CUDA_API int cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
  FAKE_CUDA_ENTER();
  return keep(machine().allocate(memory, bytes, Kind::managed));
}

FAKE_CUDA_API int cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  FAKE_CUDA_ENTER();
  return keep(machine().allocate(memory, bytes, Kind::pinned));
}

FAKE_CUDA_API int cudaMallocHost(void** memory, std::size_t bytes) {
  return cudaHostAlloc(memory, bytes, 0);
}

FAKE_CUDA_API int cudaFree(void* memory) { return keep(machine().release(memory)); }
FAKE_CUDA_API int cudaFreeHost(void* memory) { return keep(machine().release(memory)); }

FAKE_CUDA_API int cudaFreeAsync(void* memory, void* handle) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return stream == nullptr
             ? keep(fake_cuda::invalid_handle)
             : keep(machine().queue(*stream, [memory] { return machine().release(memory); }));
}

FAKE_CUDA_API int cudaMemcpy(void* to, const void* from, std::size_t bytes, int) {
  FAKE_CUDA_ENTER();
  return keep(copy_and_wait(to, from, bytes));
}

FAKE_CUDA_API int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int,
                                  void* handle) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return stream == nullptr ? keep(fake_cuda::invalid_handle)
                           : keep(machine().copy(*stream, to, from, bytes));
}

FAKE_CUDA_API int cudaMemsetAsync(void* memory, int value, std::size_t bytes, void* handle) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  if (stream == nullptr) {
    return keep(fake_cuda::invalid_handle);
  }
  return keep(machine().queue(*stream, [memory, value, bytes]() -> int {
    if (machine().find(memory, bytes) == nullptr) {
      return fake_cuda::illegal_address;
    }
    std::memset(memory, value, bytes);
    return fake_cuda::success;
  }));
}

FAKE_CUDA_API int cudaMemset(void* memory, int value, std::size_t bytes) {
  const int code = cudaMemsetAsync(memory, value, bytes, nullptr);
  return code == fake_cuda::success ? keep(machine().wait_for(*machine().stream(nullptr))) : code;
}

FAKE_CUDA_API int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  FAKE_CUDA_ENTER();
  *stream = machine().make_stream(*machine().current(), (flags & 1) == 0);
  return fake_cuda::success;
}

FAKE_CUDA_API int cudaStreamCreate(void** stream) { return cudaStreamCreateWithFlags(stream, 0); }

FAKE_CUDA_API int cudaStreamDestroy(void* stream) {
  return keep(machine().destroy_stream(static_cast<Stream*>(stream)));
}

FAKE_CUDA_API int cudaStreamSynchronize(void* handle) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return keep(stream == nullptr ? fake_cuda::invalid_handle : machine().wait_for(*stream));
}

FAKE_CUDA_API int cudaStreamQuery(void* handle) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return keep(stream == nullptr ? fake_cuda::invalid_handle : machine().done(*stream));
}

FAKE_CUDA_API int cudaStreamWaitEvent(void* handle, void* event, unsigned) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return keep(stream == nullptr ? fake_cuda::invalid_handle
                                : machine().wait_event(*stream, *static_cast<Event*>(event)));
}

FAKE_CUDA_API int cudaStreamBeginCapture(void* handle, int) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return keep(stream == nullptr ? fake_cuda::invalid_handle : machine().capture(*stream, true));
}

FAKE_CUDA_API int cudaStreamEndCapture(void* handle, void** graph) {
  FAKE_CUDA_ENTER();
  *graph = nullptr;
  Stream* const stream = machine().stream(handle);
  return keep(stream == nullptr ? fake_cuda::invalid_handle : machine().capture(*stream, false));
}

FAKE_CUDA_API int cudaStreamIsCapturing(void* handle, int* status) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  *status = stream != nullptr && machine().capturing(*stream) ? 1 : 0;
  return fake_cuda::success;
}

FAKE_CUDA_API int cudaEventCreateWithFlags(void** event, unsigned) {
  FAKE_CUDA_ENTER();
  *event = new Event{machine().current()->index, nullptr, 0};
  return fake_cuda::success;
}

FAKE_CUDA_API int cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }

FAKE_CUDA_API int cudaEventDestroy(void* event) {
  delete static_cast<Event*>(event);
  return fake_cuda::success;
}

FAKE_CUDA_API int cudaEventRecord(void* event, void* handle) {
  FAKE_CUDA_ENTER();
  Stream* const stream = machine().stream(handle);
  return keep(stream == nullptr ? fake_cuda::invalid_handle
                                : machine().record(*static_cast<Event*>(event), *stream));
}

FAKE_CUDA_API int cudaEventQuery(void* event) {
  FAKE_CUDA_ENTER();
  return keep(machine().reached(*static_cast<Event*>(event)));
}

FAKE_CUDA_API int cudaEventSynchronize(void* event) {
  FAKE_CUDA_ENTER();
  return keep(machine().wait_for(*static_cast<Event*>(event)));
}
