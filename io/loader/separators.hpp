// Separators between packed documents that files have none of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sprat::io {

struct SeparatedDocuments {
  const std::vector<std::uint32_t>& lengths;  ///< Elements of each document, its separator counted.
  const std::vector<bool>& separated;         ///< Whether its last element is the separator.
  std::span<const std::byte> separator;       ///< One element.
};

/// `row` begins with the documents' elements without separators: makes room for those and puts them
/// in. Returns what then is filled. Pure but for the row.
std::span<const std::byte> insert_separators(std::span<std::byte> row,
                                             const SeparatedDocuments& documents);

}  // namespace sprat::io
