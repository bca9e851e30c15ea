// The tables of NCCL's interface of networks that reduce, made for each version of
// coll_net_versions.def.
#include "comm/base/check.hpp"
#include "plugins/nccl_net/abi/coll_net_v10.hpp"
#include "plugins/nccl_net/abi/coll_net_v11.hpp"
#include "plugins/nccl_net/abi/coll_net_v12.hpp"
#include "plugins/nccl_net/abi/coll_net_v6.hpp"
#include "plugins/nccl_net/abi/coll_net_v7.hpp"
#include "plugins/nccl_net/abi/coll_net_v8.hpp"
#include "plugins/nccl_net/abi/coll_net_v9.hpp"
#include "plugins/nccl_net/coll_net.hpp"
#include "plugins/nccl_net/guard.hpp"
#include "plugins/nccl_net/net.hpp"
#include "plugins/nccl_net/net_properties.hpp"

namespace sprat::nccl_net {
namespace {

/// NCCL gives the one piece of memory that the window is.
template <class Piece>
Result require_one_piece(int parts, const Piece* pieces, const coll_net::Window& window) {
  return guard("a gathered or scattered window", [&] {
    require(parts == 1 && pieces != nullptr && pieces->bytes == window.bytes, parts,
            " pieces of memory for a window of ", window.bytes,
            " bytes; it must be one that is as long");
    return Result::success;
  });
}

/// Since version 8. NCCL uses them only where its ranks have NVLink switches.
template <class Table>
constexpr void add_gather_and_scatter(Table& table) {
  table.iallgather = [](void* comm, void* source, int parts, auto* targets,
                        std::size_t bytes_a_rank, std::size_t offset, std::size_t bytes, void*,
                        void** request) {
    const coll_net::Window window{bytes_a_rank, offset, bytes};
    *request = nullptr;
    const Result result = require_one_piece(parts, targets, window);
    return result != Result::success
               ? result
               : coll_net::iallgather(comm, source, targets->address, window, request);
  };
  table.ireducescatter = [](void* comm, int parts, auto* sources, void* target,
                            std::size_t bytes_a_rank, std::size_t offset, std::size_t bytes,
                            int data_type, int operation, void*, void** request) {
    const coll_net::Window window{bytes_a_rank, offset, bytes};
    *request = nullptr;
    const Result result = require_one_piece(parts, sources, window);
    return result != Result::success
               ? result
               : coll_net::ireducescatter(comm, sources->address, target, window, data_type,
                                          operation, request);
  };
}

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
  if constexpr (requires { table.iallgather; }) {
    add_gather_and_scatter(table);
  }
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
