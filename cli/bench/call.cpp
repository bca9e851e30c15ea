// One row of a table for each call.
#include "cli/bench/call.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace sprat::cli {
namespace {

/// In the order in which `all` runs them.
constexpr std::array table = {
    BenchCall{"all_reduce", Collective::all_reduce, Shape::whole},
    BenchCall{"all_gather", Collective::all_gather, Shape::gathers},
    BenchCall{"reduce_scatter", Collective::reduce_scatter, Shape::scatters},
    BenchCall{"broadcast", Collective::broadcast, Shape::whole},
    BenchCall{"all_to_all", Collective::all_to_all, Shape::exchanges},
    BenchCall{"reduce", Collective::reduce, Shape::whole},
    BenchCall{"gather", Collective::gather, Shape::gathers},
    BenchCall{"scatter", Collective::scatter, Shape::scatters},
    BenchCall{"all_gatherv", Collective::all_gather, Shape::gathers, true},
    BenchCall{"reduce_scatterv", Collective::reduce_scatter, Shape::scatters, true},
    BenchCall{"gatherv", Collective::gatherv, Shape::gathers, true},
    BenchCall{"scatterv", Collective::scatterv, Shape::scatters, true},
    BenchCall{"all_to_allv", Collective::all_to_allv, Shape::exchanges, true},
    BenchCall{"sendrecv", std::nullopt, Shape::whole},
};

}  // namespace

std::span<const BenchCall> all_bench_calls() noexcept { return table; }

const BenchCall& bench_call(const char* name) noexcept {
  return *std::ranges::find(table, std::string_view(name), &BenchCall::name);
}

bool reduces(const BenchCall& call) noexcept {
  return call.collective && collectives::reduces(*call.collective);
}

bool has_root(const BenchCall& call) noexcept {
  return call.collective && collectives::has_root(*call.collective);
}

bool can_be_in_place(const BenchCall& call) noexcept {
  return call.collective && !call.is(Collective::all_to_allv);
}

double bus_factor(const BenchCall& call, int ranks) noexcept {
  const double n = ranks;
  if (call.is(Collective::all_reduce)) {
    return 2 * (n - 1) / n;
  }
  return call.shape == Shape::whole ? 1 : (n - 1) / n;
}

}  // namespace sprat::cli
