// Memory of the stand-in device: kept by size and stream, and poisoned when it is freed.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

#include "tests/gpu/stand_in/streams.hpp"

namespace stand_in {

/// Of the current device and stream.
c10::Allocator* allocator();
/// The memory is not given to anybody before what is queued in `stream` now is done.
void record_stream(const void* memory, Stream* stream);
/// Whether it lies in memory of a device, and of which; -1: it does not.
int device_of(const void* memory);
/// Bytes in use.
std::size_t used();

}  // namespace stand_in
