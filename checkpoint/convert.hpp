// Checkpoints from one form into another, and whether they are whole; without a job.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/gpt2_names.hpp"
#include "io/formats/safetensors.hpp"
#include "sprat/checkpoint.hpp"

namespace sprat::fsdp {

/// As convert_checkpoint().
void convert(const std::string& from, const std::string& to, CheckpointForm form);

/// The tensors of a file in f32, one after another.
std::vector<io::SafeTensor> described(const CopyPlan& plan);
/// Throws Error{invalid_argument} if a file at `path` would spoil a checkpoint, or take the place
/// of what is no file, such as a device.
void check_place(const std::string& path);
/// A name beside `path` that nobody else uses.
std::string unfinished_name(const std::string& path);

/// A line for each thing that is wrong, naming the file; none if all is whole.
std::vector<std::string> verify(const std::string& path);

}  // namespace sprat::fsdp
