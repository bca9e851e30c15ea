// Bytes without a type, as they come and go between processes.
#pragma once

#include <cstddef>
#include <vector>

namespace sprat::comm {

using Blob = std::vector<std::byte>;

}  // namespace sprat::comm
