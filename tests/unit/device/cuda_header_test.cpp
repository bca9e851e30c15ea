// Our declarations of the driver's calls are those of cuda.h, where there is one.
#include <gtest/gtest.h>

#include <type_traits>

#include "device/cuda_driver.hpp"

// Not by the compiler's search path: other libraries have a cuda.h of their own.
#if defined(SPRAT_CUDA_HEADER)
#include SPRAT_CUDA_HEADER

namespace sprat::device {
namespace {

/// A type as a call passes it: enumerations as integers of 4 bytes, pointers to what is opaque as
/// pointers.
template <class T>
struct Passed {
  using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <class T>
struct Passed<T*> {
  using type = std::conditional_t<std::is_class_v<T>, void*, typename Passed<T>::type*>;
};
template <class Result, class... Arguments>
struct Passed<Result(Arguments...)> {
  using type = typename Passed<Result>::type(typename Passed<Arguments>::type...);
};

template <class Ours, class Theirs>
constexpr bool same_call = std::is_same_v<typename Passed<std::remove_pointer_t<Ours>>::type,
                                          typename Passed<std::remove_pointer_t<Theirs>>::type>;

// The names that end in a version are macros of cuda.h for the names without.
#define SPRAT_CUDA_CALL(member, exported, arguments) \
  static_assert(same_call<decltype(CudaDriver::member), decltype(&::exported)>, #exported);
#include "device/cuda_calls.def"

static_assert(sizeof(CUresult) == sizeof(Result) && sizeof(CUdeviceptr) == sizeof(Address));
static_assert(sizeof(CUpointer_attribute) == sizeof(Enumerator));
static_assert(cuda::success == CUDA_SUCCESS && cuda::not_ready == CUDA_ERROR_NOT_READY);
static_assert(cuda::capture_implicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
static_assert(cuda::stream_non_blocking == CU_STREAM_NON_BLOCKING);
static_assert(cuda::event_without_timing == CU_EVENT_DISABLE_TIMING);
static_assert(cuda::register_portable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(cuda::register_mapped == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(cuda::wait_until_reached == CU_STREAM_WAIT_VALUE_GEQ);
static_assert(cuda::write_with_barrier == CU_STREAM_WRITE_VALUE_DEFAULT);
static_assert(cuda::capture_none == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(cuda::capture_relaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(cuda::attribute_same_host_pointer ==
              CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
static_assert(cuda::pointer_memory_type == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(cuda::pointer_is_managed == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(cuda::pointer_device == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(cuda::memory_type_device == CU_MEMORYTYPE_DEVICE);

TEST(CudaHeader, our_declarations_are_the_drivers) {
  EXPECT_GE(CUDA_VERSION, 12000) << "what this was compiled against";
}

}  // namespace
}  // namespace sprat::device
#else
TEST(CudaHeader, our_declarations_are_the_drivers) {
  GTEST_SKIP() << "there is no /usr/local/cuda/include/cuda.h to compare them with";
}
#endif
