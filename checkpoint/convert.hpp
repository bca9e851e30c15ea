// Checkpoints from one form into another, and whether they are whole; without a job.
#pragma once

#include <string>
#include <vector>

#include "sprat/checkpoint.hpp"

namespace sprat::fsdp {

/// As convert_checkpoint().
void convert(const std::string& from, const std::string& to, CheckpointForm form);

/// A line for each thing that is wrong, naming the file; none if all is whole.
std::vector<std::string> verify(const std::string& path);

}  // namespace sprat::fsdp
