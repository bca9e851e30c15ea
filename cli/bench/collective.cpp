// One row of a table for each collective.
#include "cli/bench/collective.hpp"

#include <array>

namespace sprat::cli {
namespace {

constexpr unsigned reducing = 1, rooted = 2, uneven = 4;

struct Traits {
  Collective collective;
  const char* name;
  Shape shape;
  unsigned flags;
};

/// In the order of the enumeration.
constexpr std::array table = {
    Traits{Collective::all_reduce, "all_reduce", Shape::whole, reducing},
    Traits{Collective::all_gather, "all_gather", Shape::gathers, 0},
    Traits{Collective::reduce_scatter, "reduce_scatter", Shape::scatters, reducing},
    Traits{Collective::broadcast, "broadcast", Shape::whole, rooted},
    Traits{Collective::all_to_all, "all_to_all", Shape::exchanges, 0},
    Traits{Collective::reduce, "reduce", Shape::whole, reducing | rooted},
    Traits{Collective::gather, "gather", Shape::gathers, rooted},
    Traits{Collective::scatter, "scatter", Shape::scatters, rooted},
    Traits{Collective::all_gatherv, "all_gatherv", Shape::gathers, uneven},
    Traits{Collective::reduce_scatterv, "reduce_scatterv", Shape::scatters, reducing | uneven},
    Traits{Collective::gatherv, "gatherv", Shape::gathers, rooted | uneven},
    Traits{Collective::scatterv, "scatterv", Shape::scatters, rooted | uneven},
    Traits{Collective::all_to_allv, "all_to_allv", Shape::exchanges, uneven},
    Traits{Collective::sendrecv, "sendrecv", Shape::whole, 0},
};

constexpr auto collectives = [] {
  std::array<Collective, table.size()> all{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    all[i] = table[i].collective;
  }
  return all;
}();

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].collective != static_cast<Collective>(i)) {
      return false;
    }
  }
  return true;
}
static_assert(is_in_order());

const Traits& traits_of(Collective collective) noexcept {
  return table[static_cast<std::size_t>(collective)];
}

bool is(Collective collective, unsigned flag) noexcept {
  return (traits_of(collective).flags & flag) != 0;
}

}  // namespace

const char* name(Collective collective) noexcept { return traits_of(collective).name; }
std::span<const Collective> all_collectives() noexcept { return collectives; }
Shape shape_of(Collective collective) noexcept { return traits_of(collective).shape; }
bool reduces(Collective collective) noexcept { return is(collective, reducing); }
bool has_root(Collective collective) noexcept { return is(collective, rooted); }
bool is_uneven(Collective collective) noexcept { return is(collective, uneven); }

bool can_be_in_place(Collective collective) noexcept {
  return collective != Collective::sendrecv && collective != Collective::all_to_allv;
}

double bus_factor(Collective collective, int ranks) noexcept {
  const double n = ranks;
  if (collective == Collective::all_reduce) {
    return 2 * (n - 1) / n;
  }
  return shape_of(collective) == Shape::whole ? 1 : (n - 1) / n;
}

}  // namespace sprat::cli
