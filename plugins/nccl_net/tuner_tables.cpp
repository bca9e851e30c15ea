// The tables of NCCL's tuner interface, made for each version of tuner_versions.def.
#include "plugins/nccl_net/abi/tuner_v2.hpp"
#include "plugins/nccl_net/abi/tuner_v3.hpp"
#include "plugins/nccl_net/abi/tuner_v4.hpp"
#include "plugins/nccl_net/abi/tuner_v5.hpp"
#include "plugins/nccl_net/abi/tuner_v6.hpp"
#include "plugins/nccl_net/tuner.hpp"

namespace sprat::nccl_net {
namespace {

/// From version 4 on it is told whether buffers are registered, which changes nothing here.
int* channels_of(int* channels) { return channels; }
int* channels_of(int /*registered*/, int* channels) { return channels; }

constexpr void fill_choice(TunerV2& table) {
  table.get_coll_info = [](void* context, int collective, std::size_t bytes, int coll_net, int nvls,
                           int, int* algorithm, int* protocol, int* channels) {
    return tuner::choose(context, collective, bytes, coll_net != 0, nvls != 0, algorithm, protocol,
                         channels);
  };
}
template <class Table>
constexpr void fill_choice(Table& table) {
  table.get_coll_info = [](void* context, int collective, std::size_t bytes, int, float** costs,
                           int algorithms, int protocols, auto... rest) {
    return tuner::costs(context, collective, bytes, costs, algorithms, protocols,
                        channels_of(rest...));
  };
}

/// The chunk's size, of version 6, is NCCL's own.
template <class Table>
constexpr Table make_tuner() {
  Table table{};
  table.name = tuner::name;
  fill_choice(table);
  if constexpr (requires { table.finalize; }) {
    table.init = [](void** context, std::uint64_t, std::size_t ranks, std::size_t nodes, Logger log,
                    auto*, auto*) { return tuner::init(ranks, nodes, log, context); };
    table.finalize = &tuner::finalize;
  } else {
    table.init = &tuner::init;
    table.destroy = &tuner::finalize;
  }
  return table;
}

}  // namespace
}  // namespace sprat::nccl_net

extern "C" {
#define SPRAT_TUNER_VERSION(number)                                                      \
  __attribute__((visibility(                                                             \
      "default"))) constinit sprat::nccl_net::TunerV##number ncclTunerPlugin_v##number = \
      sprat::nccl_net::make_tuner<sprat::nccl_net::TunerV##number>();
#include "plugins/nccl_net/tuner_versions.def"
}
