#include "mp/context/agreement.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/base/check.hpp"

namespace sprat::mp::context {

void agree_on_attention(Communicator& ranks, const layers::AttentionShape& shape, Way way) {
  const std::vector<std::string> names = {"sequences", "length", "heads", "head width",
                                          "cp_comm_type"};
  const std::vector<std::int64_t> mine = {shape.sequences, shape.length, shape.heads,
                                          shape.head_width, std::int64_t(way)};
  std::vector<std::int64_t> all(mine.size() * std::size_t(ranks.size()));
  ranks.all_gather(elements(mine), elements(all)).wait();
  for (std::size_t at = mine.size(); at < all.size(); ++at) {
    const std::size_t term = at % mine.size();
    if (all[at] == all[term]) {
      continue;
    }
    const auto value = [&](std::int64_t number) {
      return term + 1 == mine.size() ? std::string(name(static_cast<Way>(number)))
                                     : std::to_string(number);
    };
    throw Error(ErrorCode::mismatch,
                text("ranks 0 and ", at / mine.size(), " of ", ranks.name(),
                     " cut attention of different ", names[term], ": ", value(all[term]), " and ",
                     value(all[at]), "; give each rank the same"));
  }
}

}  // namespace sprat::mp::context
