// NCCL's calls as Sprat's.
#include "plugins/nccl_abi/operation.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "plugins/nccl_abi/errors.hpp"

namespace sprat::nccl {
namespace {

constexpr std::array dtypes = {DType::i8,  DType::u8,   DType::i32,    DType::u32,
                               DType::i64, DType::u64,  DType::f16,    DType::f32,
                               DType::f64, DType::bf16, DType::f8e4m3, DType::f8e5m2};
static_assert(dtypes.size() == ncclNumTypes);
constexpr std::array ops = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min,
                            ReduceOp::avg};
static_assert(ops.size() == ncclNumOps);

float widen(float16 value) { return to_float(value); }
float widen(bfloat16 value) { return to_float(value); }
float widen(float8_e4m3 value) { return to_float(value); }
float widen(float8_e5m2 value) { return to_float(value); }
void narrow(float value, float16& to) { to = to_float16(value); }
void narrow(float value, bfloat16& to) { to = to_bfloat16(value); }
void narrow(float value, float8_e4m3& to) { to = to_float8_e4m3(value); }
void narrow(float value, float8_e5m2& to) { to = to_float8_e5m2(value); }

/// Rounded to the type, as NCCL does: what ranks add up is of the type that they hold.
template <class T>
T product(T value, T factor) {
  if constexpr (std::is_floating_point_v<T>) {
    return value * factor;
  } else if constexpr (std::is_integral_v<T>) {
    // Integers wrap; multiplied without a sign, so that it is defined.
    return static_cast<T>(static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(factor));
  } else {
    T rounded;
    narrow(widen(value) * widen(factor), rounded);
    return rounded;
  }
}

template <class T>
void scale_all(const void* in, const Scale& scale, std::size_t count, void* to) {
  T factor;
  std::memcpy(&factor, scale.number.data(), sizeof(T));
  for (std::size_t at = 0; at < count * sizeof(T); at += sizeof(T)) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(in) + at, sizeof(T));
    value = product(value, factor);
    std::memcpy(static_cast<std::byte*>(to) + at, &value, sizeof(T));
  }
}

std::size_t times(std::size_t count, int size, DType dtype) {
  const std::size_t most = std::numeric_limits<std::size_t>::max() / size_of(dtype);
  if (count > most / static_cast<std::size_t>(size)) {
    refuse(ncclInvalidArgument, "count " + std::to_string(count) + " times " +
                                    std::to_string(size) + " ranks is more than memory can hold");
  }
  return count * static_cast<std::size_t>(size);
}

}  // namespace

const char* name(Kind kind) noexcept {
  switch (kind) {
    case Kind::all_reduce:
      return "ncclAllReduce";
    case Kind::broadcast:
      return "ncclBroadcast";
    case Kind::reduce:
      return "ncclReduce";
    case Kind::all_gather:
      return "ncclAllGather";
    case Kind::reduce_scatter:
      return "ncclReduceScatter";
    case Kind::all_to_all:
      return "ncclAlltoAll";
    case Kind::gather:
      return "ncclGather";
    case Kind::scatter:
      return "ncclScatter";
    case Kind::send:
      return "ncclSend";
    case Kind::recv:
      return "ncclRecv";
  }
  return "?";
}

Extent extent(const Operation& operation, int rank, int size) {
  const std::size_t one = operation.count;
  const std::size_t all = times(one, size, operation.dtype);
  const bool root = rank == operation.peer;
  switch (operation.kind) {
    case Kind::all_reduce:
      return {one, one};
    case Kind::broadcast:
      return {root ? one : 0, one};
    case Kind::reduce:
      return {one, root ? one : 0};
    case Kind::all_gather:
      return {one, all};
    case Kind::reduce_scatter:
      return {all, one};
    case Kind::all_to_all:
      return {all, all};
    case Kind::gather:
      return {one, root ? all : 0};
    case Kind::scatter:
      return {root ? all : 0, one};
    case Kind::send:
      return {one, 0};
    case Kind::recv:
      return {0, one};
  }
  return {};
}

DType dtype_of(ncclDataType_t type) {
  // C passes any number as an enumeration.
  const auto number = static_cast<std::size_t>(type);
  if (number >= dtypes.size()) {
    refuse(ncclInvalidArgument,
           "datatype " + std::to_string(static_cast<int>(type)) + " is none of ncclDataType_t");
  }
  return dtypes[number];
}

std::optional<ReduceOp> op_of(ncclRedOp_t op) {
  const auto number = static_cast<std::size_t>(op);
  return number < ops.size() ? std::optional(ops[number]) : std::nullopt;
}

// Operations come from NCCL's numbers alone, so each has one.
ncclDataType_t number_of(DType dtype) {
  return static_cast<ncclDataType_t>(std::ranges::find(dtypes, dtype) - dtypes.begin());
}

ncclRedOp_t number_of(ReduceOp op) {
  return static_cast<ncclRedOp_t>(std::ranges::find(ops, op) - ops.begin());
}

void check(const Operation& operation, int rank, int size) {
  const std::string call = name(operation.kind);
  const bool has_peer = operation.between_two() || operation.kind == Kind::broadcast ||
                        operation.kind == Kind::reduce || operation.kind == Kind::gather ||
                        operation.kind == Kind::scatter;
  if (has_peer && (operation.peer < 0 || operation.peer >= size)) {
    refuse(ncclInvalidArgument, call + ": " + (operation.between_two() ? "peer " : "root ") +
                                    std::to_string(operation.peer) + " is not in 0 to " +
                                    std::to_string(size - 1));
  }
  const Extent used = extent(operation, rank, size);
  if ((used.in > 0 && operation.in == nullptr) || (used.out > 0 && operation.out == nullptr)) {
    refuse(ncclInvalidArgument,
           call + ": " + (used.in > 0 && operation.in == nullptr ? "sendbuff" : "recvbuff") +
               " is null, and " + std::to_string(operation.count) + " elements are asked for");
  }
  if (operation.reduces() && !takes(operation.op, operation.dtype)) {
    refuse(ncclInvalidArgument, call + ": " + sprat::name(operation.op) + " is not defined for " +
                                    sprat::name(operation.dtype));
  }
}

// Ranks may have different factors, which Sprat's own premultiplied sum wants to be one: so each
// multiplies before it sends.
void scale_elements(const Operation& operation, const void* in, std::size_t count, void* to) {
  switch (operation.dtype) {
#define SPRAT_DTYPE(name, type, bytes) \
  case DType::name:                    \
    return scale_all<type>(in, *operation.scale, count, to);
#include "sprat/dtypes.def"
  }
}

Work start(Communicator& communicator, const Operation& operation, const void* in, void* out,
           Options options) {
  const Extent used = extent(operation, communicator.rank(), communicator.size());
  const ConstElements give(in, used.in, operation.dtype);
  const Elements get{out, used.out, operation.dtype};
  switch (operation.kind) {
    case Kind::all_reduce:
      return communicator.all_reduce(give, get, operation.op, options);
    case Kind::broadcast:
      if (give.bytes() > 0 && in != out) {
        std::memcpy(out, in, give.bytes());  // Sprat's is in place
      }
      return communicator.broadcast(get, operation.peer, options);
    case Kind::reduce:
      return communicator.reduce(give, get, operation.peer, operation.op, options);
    case Kind::all_gather:
      return communicator.all_gather(give, get, options);
    case Kind::reduce_scatter:
      return communicator.reduce_scatter(give, get, operation.op, options);
    case Kind::all_to_all:
      return communicator.all_to_all(give, get, options);
    case Kind::gather:
      return communicator.gather(give, get, operation.peer, options);
    case Kind::scatter:
      return communicator.scatter(give, get, operation.peer, options);
    case Kind::send:
      return communicator.send(give, operation.peer, 0, options);
    case Kind::recv:
      return communicator.recv(get, operation.peer, 0, options);
  }
  return {};
}

}  // namespace sprat::nccl
