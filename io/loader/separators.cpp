#include "io/loader/separators.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace sprat::io {

std::span<const std::byte> insert_separators(std::span<std::byte> row,
                                             const SeparatedDocuments& documents) {
  const auto& [lengths, separated, separator] = documents;
  const std::size_t each = separator.size();
  const std::size_t all = std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}) * each;
  const auto count = static_cast<std::size_t>(std::ranges::count(separated, true));
  // From the last document on: what moves goes to places whose elements have moved already.
  std::size_t to = all, from = all - count * each;
  for (std::size_t at = lengths.size(); at-- > 0 && to != from;) {
    std::size_t bytes = lengths[at] * each;
    if (separated[at]) {
      to -= each;
      bytes -= each;
      std::ranges::copy(separator, row.subspan(to).begin());
    }
    to -= bytes;
    from -= bytes;
    std::memmove(row.data() + to, row.data() + from, bytes);
  }
  return row.first(all);
}

}  // namespace sprat::io
