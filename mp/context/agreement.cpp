#include "mp/context/agreement.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/check.hpp"

namespace sprat::mp::context {
namespace {

/// In place of a way's number, for a word that names none.
constexpr std::int64_t no_way = -1;

std::string name_of(std::int64_t way) {
  return way == no_way ? "an unknown one" : std::string(name(static_cast<Way>(way)));
}

}  // namespace

// A wrong word is told to the others before this rank throws, for they would wait for it.
Way agree_on_attention(Communicator& ranks, const layers::AttentionShape& shape,
                       std::string_view cp_comm_type) {
  const std::vector<std::string> names = {"sequences", "length", "heads", "head width",
                                          "cp_comm_type"};
  const std::int64_t way = is_way(cp_comm_type) ? std::int64_t(way_named(cp_comm_type)) : no_way;
  const std::vector<std::int64_t> mine = {shape.sequences, shape.length, shape.heads,
                                          shape.head_width, way};
  std::vector<std::int64_t> all(mine.size() * std::size_t(ranks.size()));
  ranks.all_gather(elements(mine), elements(all)).wait();
  for (std::size_t at = mine.size(); at < all.size(); ++at) {
    const std::size_t term = at % mine.size();
    if (all[at] == all[term]) {
      continue;
    }
    const auto value = [&](std::int64_t number) {
      return term + 1 == mine.size() ? name_of(number) : std::to_string(number);
    };
    throw Error(ErrorCode::mismatch,
                text("ranks 0 and ", at / mine.size(), " of ", ranks.name(),
                     " cut attention of different ", names[term], ": ", value(all[term]), " and ",
                     value(all[at]), "; give each rank the same"));
  }
  return way_named(cp_comm_type);
}

}  // namespace sprat::mp::context
