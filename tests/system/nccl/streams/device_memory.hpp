// Memory and streams of the stand-in for CUDA, for tests of the drop-in on them.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>

// Tests on streams have our own declarations alone: nccl.h needs CUDA's headers, whose runtime this
// is not.
#undef SPRAT_NCCL_HEADER
#include "plugins/nccl_abi/abi.h"
#include "tests/system/nccl/numbers.hpp"
#include "tests/system/nccl/ranks.hpp"

// What programs call of CUDA; the stand-in has them by these names.
extern "C" {
int cudaMalloc(void** memory, std::size_t bytes);
int cudaFree(void* memory);
int cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
int cudaFreeHost(void* memory);
int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void* stream);
int cudaStreamCreateWithFlags(void** stream, unsigned flags);
int cudaStreamDestroy(void* stream);
int cudaStreamSynchronize(void* stream);
int cudaStreamBeginCapture(void* stream, int mode);
int cudaStreamEndCapture(void* stream, void** graph);
int cuStreamWaitValue32_v2(void* stream, unsigned long long address, std::uint32_t value,
                           unsigned flags);
}

namespace sprat::nccl_tests {

inline constexpr int any_direction = 4;
// Before the library first asks for a driver.
inline const int chosen = setenv("SPRAT_CUDA_DRIVER", SPRAT_FAKE_CUDA, 1);

inline cudaStream_t as_stream(void* handle) { return static_cast<cudaStream_t>(handle); }

/// Memory of the device, filled in stream order.
class OnDevice {
 public:
  OnDevice(const Bytes& bytes, void* stream) : from_(bytes), stream_(stream) {
    EXPECT_EQ(cudaMalloc(&memory_, from_.size()), 0);
    EXPECT_EQ(cudaMemcpyAsync(memory_, from_.data(), from_.size(), any_direction, stream_), 0);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(memory_); }
  void* data() const { return memory_; }
  /// Once the stream has come so far.
  Bytes read() const {
    Bytes bytes(from_.size());
    EXPECT_EQ(cudaMemcpyAsync(bytes.data(), memory_, bytes.size(), any_direction, stream_), 0);
    EXPECT_EQ(cudaStreamSynchronize(stream_), 0);
    return bytes;
  }

 private:
  const Bytes from_;
  void* const stream_;
  void* memory_ = nullptr;
};

class Stream {
 public:
  Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&handle_, 1), 0); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(handle_); }
  void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

/// A word that streams wait for.
class Gate {
 public:
  Gate() {
    void* memory = nullptr;
    EXPECT_EQ(cudaHostAlloc(&memory, sizeof(std::uint32_t), 0), 0);
    word_ = static_cast<std::uint32_t*>(memory);
    *word_ = 0;
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { cudaFreeHost(word_); }
  void hold(void* stream) {
    EXPECT_EQ(cuStreamWaitValue32_v2(stream, reinterpret_cast<unsigned long long>(word_), 1, 0), 0);
  }
  void open() { std::atomic_ref(*word_).store(1); }

 private:
  std::uint32_t* word_ = nullptr;
};

inline const Type& type_of(ncclDataType_t type) {
  return all_types()[static_cast<std::size_t>(type)];
}

inline Bytes filled(const Type& type, std::size_t count, double value) {
  return make(type, count, [value](std::size_t) { return value; });
}

}  // namespace sprat::nccl_tests
