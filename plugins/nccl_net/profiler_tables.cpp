// The tables of NCCL's profiler interface, made for each version of profiler_versions.def.
#include <unistd.h>

#include <array>
#include <type_traits>

#include "plugins/nccl_net/abi/profiler_v1.hpp"
#include "plugins/nccl_net/abi/profiler_v2.hpp"
#include "plugins/nccl_net/abi/profiler_v3.hpp"
#include "plugins/nccl_net/abi/profiler_v4.hpp"
#include "plugins/nccl_net/abi/profiler_v5.hpp"
#include "plugins/nccl_net/abi/profiler_v6.hpp"
#include "plugins/nccl_net/guard.hpp"
#include "plugins/nccl_net/profiler.hpp"

namespace sprat::nccl_net {
namespace {

/// Of ncclFunc_t, as far as version 1 gives numbers.
constexpr std::array functions = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                  "AllReduce", "SendRecv", "Send",      "Recv"};

const char* word(const char* text) { return text; }
const char* word(std::uint8_t function) {
  return function < functions.size() ? functions[function] : nullptr;
}

/// Version 1 gives numbers for what later ones have words for.
template <class Described>
void add_words(TracedFacts& facts, const Described& described) {
  if constexpr (std::is_same_v<decltype(described.algorithm), const char*>) {
    facts.data_type = described.data_type;
    facts.algorithm = described.algorithm;
    facts.protocol = described.protocol;
  }
}

template <class Described>
Result start(void* context, void** event, Described* described) {
  *event = nullptr;
  TracedFacts facts{.kind = static_cast<TracedKind>(described->type), .rank = described->rank};
  switch (facts.kind) {
    case TracedKind::coll:
      facts.function = word(described->coll.function);
      facts.count = described->coll.count;
      add_words(facts, described->coll);
      break;
    case TracedKind::p2p:
      facts.function = word(described->p2p.function);
      facts.count = described->p2p.count;
      facts.peer = described->p2p.peer;
      break;
    case TracedKind::proxy_op:
      // A rank may have another process of its node work for it; that one's addresses are none
      // here.
      if (described->proxy_op.process != ::getpid()) {
        described->parent = nullptr;
      }
      facts.count = static_cast<std::size_t>(described->proxy_op.steps);
      facts.peer = described->proxy_op.peer;
      facts.channel = described->proxy_op.channel;
      facts.sends = described->proxy_op.sends != 0;
      break;
    default:
      return Result::success;  // not asked for
  }
  return profiler::start(context, event, facts, described->parent);
}

template <class Table>
constexpr void fill_init(Table& table) {
  table.init = [](void** context, std::uint64_t, int* events, const char*, int, int, int,
                  Logger log) {
    set_logger(log);
    return profiler::init(context, events);
  };
}
constexpr void fill_init(ProfilerV4& table) {
  table.init = [](void** context, int* events, const char*, std::uint64_t, int, int, int,
                  Logger log) {
    set_logger(log);
    return profiler::init(context, events);
  };
}
constexpr void fill_init(ProfilerV3& table) { table.init = &profiler::init; }
constexpr void fill_init(ProfilerV2& table) { table.init = &profiler::init; }
constexpr void fill_init(ProfilerV1& table) { table.init = &profiler::init; }

template <class Table>
constexpr Table make_profiler() {
  Table table{};
  table.name = profiler::name;
  fill_init(table);
  table.start_event = [](void* context, void** event, auto* described) {
    return start(context, event, described);
  };
  table.stop_event = &profiler::stop;
  table.record_event_state = [](void*, int, auto*) { return Result::success; };
  table.finalize = &profiler::finalize;
  return table;
}

}  // namespace
}  // namespace sprat::nccl_net

extern "C" {
#define SPRAT_PROFILER_VERSION(number)                                                   \
  __attribute__((visibility(                                                             \
      "default"))) constinit sprat::nccl_net::ProfilerV##number ncclProfiler_v##number = \
      sprat::nccl_net::make_profiler<sprat::nccl_net::ProfilerV##number>();
#include "plugins/nccl_net/profiler_versions.def"
}
