// The tables of NCCL's interface of networks that reduce, made for each version of
// coll_net_versions.def.
#include "plugins/nccl_net/abi/coll_net_v10.hpp"
#include "plugins/nccl_net/abi/coll_net_v11.hpp"
#include "plugins/nccl_net/abi/coll_net_v12.hpp"
#include "plugins/nccl_net/abi/coll_net_v6.hpp"
#include "plugins/nccl_net/abi/coll_net_v7.hpp"
#include "plugins/nccl_net/abi/coll_net_v8.hpp"
#include "plugins/nccl_net/abi/coll_net_v9.hpp"
#include "plugins/nccl_net/coll_net.hpp"
#include "plugins/nccl_net/net.hpp"
#include "plugins/nccl_net/net_properties.hpp"

namespace sprat::nccl_net {
namespace {

/// Gathering and scattering are left null: NCCL does them by the network only with NVLink switches,
/// and asks whether they are there.
template <class Table>
constexpr Table make_coll_net() {
  Table table{};
  table.name = coll_net::name;
  if constexpr (requires { table.finalize; }) {
    table.init = [](void** context, std::uint64_t, Logger log) { return net::init(context, log); };
    table.listen = &net::listen;
    table.finalize = &net::finalize;
  } else {
    table.init = [](Logger log) { return net::init(nullptr, log); };
    table.listen = [](int device, void* handle, void** listener) {
      return net::listen(nullptr, device, handle, listener);
    };
  }
  table.devices = &net::devices;
  table.get_properties = [](int device, auto* properties) {
    return get_properties(device, properties);
  };
  table.connect = &coll_net::connect;
  table.reduce_support = &coll_net::reduce_support;
  table.reg_mr = [](void*, void*, auto, int type, void** registration) {
    return net::reg_mr(type, registration);
  };
  table.dereg_mr = [](void*, void*) { return Result::success; };
  table.iallreduce = [](void* comm, void* source, void* target, auto count, int data_type,
                        int operation, void*, void*, void** request) {
    return coll_net::iallreduce(comm, source, target, static_cast<std::size_t>(count), data_type,
                                operation, request);
  };
  table.iflush = [](void*, void*, int, void*, void** request) {
    *request = nullptr;
    return Result::success;
  };
  table.test = &coll_net::test;
  table.close_coll = &coll_net::close;
  table.close_listen = &net::close_listen;
  return table;
}

}  // namespace
}  // namespace sprat::nccl_net

extern "C" {
#define SPRAT_COLL_NET_VERSION(number)                                                       \
  __attribute__((visibility(                                                                 \
      "default"))) constinit sprat::nccl_net::CollNetV##number ncclCollNetPlugin_v##number = \
      sprat::nccl_net::make_coll_net<sprat::nccl_net::CollNetV##number>();
#include "plugins/nccl_net/coll_net_versions.def"
}
