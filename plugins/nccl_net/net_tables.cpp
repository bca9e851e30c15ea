// The tables that NCCL looks up, made for each version of net_versions.def from one description:
// what a version has, its own struct says, and what differs in a call, the types of its arguments.
#include <array>

#include "plugins/nccl_net/abi/net_v10.hpp"
#include "plugins/nccl_net/abi/net_v11.hpp"
#include "plugins/nccl_net/abi/net_v12.hpp"
#include "plugins/nccl_net/abi/net_v6.hpp"
#include "plugins/nccl_net/abi/net_v7.hpp"
#include "plugins/nccl_net/abi/net_v8.hpp"
#include "plugins/nccl_net/abi/net_v9.hpp"
#include "plugins/nccl_net/net.hpp"
#include "plugins/nccl_net/net_comm.hpp"
#include "plugins/nccl_net/net_properties.hpp"

namespace sprat::nccl_net {
namespace {

/// Sizes of older versions are int.
template <class Size>
Result irecv(void* receiver, int count, void** data, const Size* bytes, const int* tags,
             void** request) {
  std::array<std::size_t, most_receives> sizes{};
  for (int at = 0; at < count && at < most_receives; ++at) {
    sizes[static_cast<std::size_t>(at)] = static_cast<std::size_t>(bytes[at]);
  }
  return net::irecv(receiver, count, data, sizes.data(), tags, request);
}

/// From version 10 on an event of the profiler's stands before the request.
void** request_of(void** request) { return request; }
void** request_of(void* /*event*/, void** request) { return request; }
void** request_of(void** /*events*/, void** request) { return request; }

/// init, connect and listen take a context from version 11 on.
template <class Table>
constexpr void fill_setup(Table& table) {
  if constexpr (requires { table.finalize; }) {
    table.init = [](void** context, std::uint64_t, auto*, Logger log, ProfilerCallback) {
      return net::init(context, log);
    };
    table.listen = &net::listen;
    table.connect = [](void* context, int device, void* handle, void** sender, NetDeviceHandle**) {
      return net::connect(context, device, handle, sender);
    };
    table.finalize = &net::finalize;
  } else {
    table.init = [](Logger log, auto...) { return net::init(nullptr, log); };
    table.listen = [](int device, void* handle, void** listener) {
      return net::listen(nullptr, device, handle, listener);
    };
  }
}

/// Of older versions, by what stands between the device and the handle, and behind.
constexpr void fill_connect(NetV10& table) {
  table.connect = [](int device, NetConfigV10*, void* handle, void** sender, NetDeviceHandle**) {
    return net::connect(nullptr, device, handle, sender);
  };
}
template <class Table>
constexpr void fill_connect(Table& table) {
  if constexpr (!requires { table.finalize; }) {
    table.connect = [](int device, void* handle, void** sender, auto...) {
      return net::connect(nullptr, device, handle, sender);
    };
  }
}

/// What is left null is not offered: DMA-BUF, device offload, virtual devices, hints.
template <class Table>
constexpr Table make_table() {
  Table table{};
  table.name = net::name;
  fill_setup(table);
  fill_connect(table);
  table.devices = &net::devices;
  table.get_properties = [](int device, auto* properties) {
    return get_properties(device, properties);
  };
  table.accept = [](void* listener, void** receiver, auto...) {
    return net::accept(listener, receiver);
  };
  table.reg_mr = [](void*, void*, auto, int type, void** registration) {
    return net::reg_mr(type, registration);
  };
  table.dereg_mr = [](void*, void*) { return Result::success; };
  table.isend = [](void* sender, void* data, auto bytes, int tag, void*, auto... rest) {
    return net::isend(sender, data, static_cast<std::size_t>(bytes), tag, request_of(rest...));
  };
  table.irecv = [](void* receiver, int count, void** data, auto* bytes, int* tags, void**,
                   auto... rest) {
    return irecv(receiver, count, data, bytes, tags, request_of(rest...));
  };
  // What was received is in memory once it is told: a processor wrote it, not a card.
  table.iflush = [](void*, int, void**, int*, void**, void** request) {
    *request = nullptr;
    return Result::success;
  };
  table.test = &net::test;
  table.close_send = &net::close_comm;
  table.close_recv = &net::close_comm;
  table.close_listen = &net::close_listen;
  return table;
}

}  // namespace
}  // namespace sprat::nccl_net

// By C's names, and not constant, for NCCL holds them by pointers that might write.
extern "C" {
#define SPRAT_NET_VERSION(number)                                                               \
  __attribute__((                                                                               \
      visibility("default"))) constinit sprat::nccl_net::NetV##number ncclNetPlugin_v##number = \
      sprat::nccl_net::make_table<sprat::nccl_net::NetV##number>();
#include "plugins/nccl_net/net_versions.def"
}
