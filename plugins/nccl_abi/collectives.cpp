// The collectives, sends and receives of NCCL: an Operation each, at once or at the end of the
// group.
#include <cstring>
#include <string>

#include "plugins/nccl_abi/comm.hpp"
#include "plugins/nccl_abi/functions.hpp"
#include "plugins/nccl_abi/group.hpp"

namespace sprat::nccl {
namespace {

ncclResult_t call(ncclComm_t handle, Operation operation, ncclDataType_t type, cudaStream_t stream,
                  std::optional<ncclRedOp_t> op = std::nullopt) {
  return guard_in_group([&] {
    auto comm = comm_of(handle);
    comm->require_usable();
    operation.dtype = dtype_of(type);
    if (op) {
      const auto plain = op_of(*op);
      operation.op = plain.value_or(ReduceOp::sum);
      if (!plain) {
        operation.scale = comm->scale_of(*op, operation.dtype);
      }
    }
    check(operation, comm->rank(), comm->size());
    return add(Queued{std::move(comm), operation, stream});
  });
}

/// What 2.32's calls may ask for besides. How many CTAs run means nothing here, and a profiler's
/// tag changes nothing; what would have to be obeyed is refused.
ncclResult_t check_config(const ncclCollConfig_t* config) {
  return guard_in_group([&] {
    if (config == nullptr) {
      return ncclSuccess;
    }
    if (config->magic != SPRAT_NCCL_MAGIC) {
      refuse(ncclInvalidArgument, "config was not initialised by NCCL_COLLCONFIG_INITIALIZER");
    }
    ncclCollConfig_t known{};
    std::memcpy(&known, config, std::min(config->size, sizeof(known)));
    if (known.launchCompletionEvent != nullptr) {
      refuse(ncclInvalidUsage,
             "config.launchCompletionEvent is not served: Sprat launches no kernel whose start it "
             "could tell");
    }
    if (known.algSelection != nullptr && *known.algSelection != '\0' &&
        known.forceAlgSelection != 0) {
      refuse(ncclInvalidUsage, "config.algSelection \"" + std::string(known.algSelection) +
                                   "\" names algorithms of NCCL's; Sprat's are chosen by "
                                   "SPRAT_ALGORITHM");
    }
    return ncclSuccess;
  });
}

}  // namespace

ncclResult_t AllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {.kind = Kind::all_reduce, .in = in, .out = out, .count = count}, type, stream,
              op);
}

ncclResult_t Broadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {.kind = Kind::broadcast, .in = in, .out = out, .count = count, .peer = root},
              type, stream);
}

ncclResult_t Bcast(void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                   cudaStream_t stream) {
  return Broadcast(data, data, count, type, root, comm, stream);
}

ncclResult_t Reduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                    int root, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {.kind = Kind::reduce, .in = in, .out = out, .count = count, .peer = root},
              type, stream, op);
}

ncclResult_t AllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                       ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {.kind = Kind::all_gather, .in = in, .out = out, .count = count}, type, stream);
}

ncclResult_t ReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {.kind = Kind::reduce_scatter, .in = in, .out = out, .count = count}, type,
              stream, op);
}

ncclResult_t AlltoAll(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, {.kind = Kind::all_to_all, .in = in, .out = out, .count = count}, type, stream);
}

ncclResult_t Gather(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                    ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {.kind = Kind::gather, .in = in, .out = out, .count = count, .peer = root},
              type, stream);
}

ncclResult_t Scatter(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                     ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {.kind = Kind::scatter, .in = in, .out = out, .count = count, .peer = root},
              type, stream);
}

ncclResult_t Send(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return call(comm, {.kind = Kind::send, .in = in, .count = count, .peer = peer}, type, stream);
}

ncclResult_t Recv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return call(comm, {.kind = Kind::recv, .out = out, .count = count, .peer = peer}, type, stream);
}

ncclResult_t AllReduceConfig(const void* in, void* out, size_t count, ncclDataType_t type,
                             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                             const ncclCollConfig_t* config) {
  const ncclResult_t wrong = check_config(config);
  return wrong != ncclSuccess ? wrong : AllReduce(in, out, count, type, op, comm, stream);
}

ncclResult_t BroadcastConfig(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  const ncclResult_t wrong = check_config(config);
  return wrong != ncclSuccess ? wrong : Broadcast(in, out, count, type, root, comm, stream);
}

ncclResult_t ReduceConfig(const void* in, void* out, size_t count, ncclDataType_t type,
                          ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                          const ncclCollConfig_t* config) {
  const ncclResult_t wrong = check_config(config);
  return wrong != ncclSuccess ? wrong : Reduce(in, out, count, type, op, root, comm, stream);
}

ncclResult_t AllGatherConfig(const void* in, void* out, size_t count, ncclDataType_t type,
                             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  const ncclResult_t wrong = check_config(config);
  return wrong != ncclSuccess ? wrong : AllGather(in, out, count, type, comm, stream);
}

ncclResult_t ReduceScatterConfig(const void* in, void* out, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) {
  const ncclResult_t wrong = check_config(config);
  return wrong != ncclSuccess ? wrong : ReduceScatter(in, out, count, type, op, comm, stream);
}

ncclResult_t AlltoAllConfig(const void* in, void* out, size_t count, ncclDataType_t type,
                            ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  const ncclResult_t wrong = check_config(config);
  return wrong != ncclSuccess ? wrong : AlltoAll(in, out, count, type, comm, stream);
}

ncclResult_t GatherConfig(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  const ncclResult_t wrong = check_config(config);
  return wrong != ncclSuccess ? wrong : Gather(in, out, count, type, root, comm, stream);
}

ncclResult_t ScatterConfig(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
  const ncclResult_t wrong = check_config(config);
  return wrong != ncclSuccess ? wrong : Scatter(in, out, count, type, root, comm, stream);
}

// The number is read now, or where it lies on a device when the operation runs.
ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                  ncclScalarResidence_t where, ncclComm_t comm) {
  return guard([&] {
    deref(op, "op");
    deref(static_cast<const char*>(scalar), "scalar");
    const auto owner = comm_of(comm);
    owner->require_joined();
    const DType dtype = dtype_of(type);
    Scale scale;
    if (where == ncclScalarHostImmediate) {
      std::memcpy(scale.number.data(), scalar, size_of(dtype));
    } else if (where == ncclScalarDevice) {
      scale.on_device = scalar;
    } else {
      refuse(ncclInvalidArgument, "residence is none of ncclScalarResidence_t");
    }
    *op = owner->add_scale(scale, dtype);
    return ncclSuccess;
  });
}

ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return guard([&] {
    if (op_of(op)) {
      refuse(ncclInvalidArgument, "op " + std::to_string(static_cast<int>(op)) +
                                      " is one of NCCL's own, which cannot be destroyed");
    }
    auto owner = comm_of(comm);
    const Scale scale = owner->remove_scale(op);
    return add(EndedScale{std::move(owner), scale});
  });
}

}  // namespace sprat::nccl
