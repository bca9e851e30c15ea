// A partition as a file: what stands in it.
#pragma once

#include <span>
#include <string>

#include "sprat/partition.hpp"

namespace sprat::mp {

/// Of names and bytes of parameters: equal for models that one partition fits. Times and
/// activations do not count, which are measured anew on every machine.
std::string model_fingerprint(std::span<const ModelPiece* const> pieces);

std::string write_partition_file(std::span<const ModelPiece* const> pieces,
                                 std::span<const int> partition_of, int partitions);

}  // namespace sprat::mp
