// What files hold that no manifest tells of: their own headers say it.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/plan/contents.hpp"

namespace sprat::fsdp {

/// Of safetensors files: their headers, without checksums. A file that names saved offsets (as
/// torch.distributed.checkpoint writes them) holds a box of each tensor, any other whole tensors.
Contents read_safetensors(const std::vector<std::string>& paths);

}  // namespace sprat::fsdp
