// A partition as a file, so that a later run cuts the model in the same places; and as a person
// writes it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mp/partition/piece.hpp"

namespace sprat::mp {

struct PartitionFile {
  struct Entry {
    std::string name;
    double parameter_bytes = 0;  ///< Shared ones included.
    int partition = 0;
  };
  int partitions = 1;
  std::vector<Entry> pieces;  ///< In execution order.
};

/// Of names and bytes of parameters: equal for models that one partition fits. Times and
/// activations do not count, which are measured anew on every machine.
std::string model_fingerprint(std::span<const ModelPiece* const> pieces);

std::string write_partition_file(std::span<const ModelPiece* const> pieces,
                                 std::span<const int> partition_of, int partitions);
/// Throws Error{invalid_argument}, beginning with `name`, for what is no partition file.
PartitionFile parse_partition_file(const std::string& name, std::string_view text);
/// The partition of each piece. Throws Error{invalid_argument} that says what differs if the file
/// is of another model or another number of partitions.
std::vector<int> partition_from(const std::string& name, const PartitionFile& file,
                                std::span<const ModelPiece* const> pieces, int partitions);

/// `pins`: names to partitions. A piece goes where the longest pin says that is its name or a
/// dotted beginning of it ("h.3" has "h.3.mlp"), else to `default_partition`. Throws
/// Error{invalid_argument} for pins of no piece and for partitions that are not there.
std::vector<int> manual_partition(std::span<const ModelPiece* const> pieces,
                                  const std::map<std::string, int>& pins, int default_partition,
                                  int partitions);

}  // namespace sprat::mp
