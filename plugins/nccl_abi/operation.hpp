// One call of NCCL's on memory, as a value, and how it is started on Sprat.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "plugins/nccl_abi/abi.h"
#include "sprat/communicator.hpp"

namespace sprat::nccl {

enum class Kind {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  send,
  recv
};
/// "ncclAllReduce" and so on.
const char* name(Kind kind) noexcept;

/// What each rank multiplies its own contribution by, before sums: a number of the operation's
/// type, here or on a device.
struct Scale {
  std::array<std::byte, 8> number{};
  const void* on_device = nullptr;
  ncclRedOp_t real = ncclSum;  ///< The same op of NCCL's own library, where sums go over to it.
};

struct Operation {
  Kind kind{};
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  ///< As in NCCL's call: of a block, where there are blocks.
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::optional<Scale> scale = std::nullopt;
  int peer = 0;  ///< Or root.

  bool reduces() const {
    return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
  }
  bool between_two() const { return kind == Kind::send || kind == Kind::recv; }
};

/// Elements that this rank gives and gets; 0 where NCCL does not look at the pointer. Throws if
/// memory could not hold them.
struct Extent {
  std::size_t in = 0, out = 0;
  bool operator==(const Extent&) const = default;
};
Extent extent(const Operation& operation, int rank, int size);

/// Throws ncclInvalidArgument.
DType dtype_of(ncclDataType_t type);
/// Of the five that need no more than their number; nothing of others.
std::optional<ReduceOp> op_of(ncclRedOp_t op);
/// And back.
ncclDataType_t number_of(DType dtype);
ncclRedOp_t number_of(ReduceOp op);
/// Throws, as NCCL does, what is wrong with the call: a root that is none, memory that is missing,
/// an operation that its type lacks.
void check(const Operation& operation, int rank, int size);

/// to <- in times the operation's scale, rounded to its type. `to` may be `in`.
void scale_elements(const Operation& operation, const void* in, std::size_t count, void* to);

/// Starts it on memory of the host, in the place of the operation's own pointers; `in` is scaled
/// already. Blocks for nobody, unless the options say so.
Work start(Communicator& communicator, const Operation& operation, const void* in, void* out,
           Options options = {});

}  // namespace sprat::nccl
