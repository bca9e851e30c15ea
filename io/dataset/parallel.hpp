// Threads that share out numbered work.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace sprat::io {

/// Calls `work` for each number below `count`, in no order, on this thread and up to `threads` - 1
/// others; until all are done, or one call returned false. `work` must not throw. `purpose` is for
/// people, as in "indexing files".
void in_parallel(std::size_t count, int threads, std::string_view purpose,
                 const std::function<bool(std::size_t)>& work);

}  // namespace sprat::io
