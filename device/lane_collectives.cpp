// A lane's own collectives: how each is cut, and started on the host.
//
// On the host all are in place where their types allow it, which halves the memory: a part lies at
// its rank's block of the whole. Whether they are in place on the device is nothing to that.
#include <cstddef>
#include <limits>
#include <utility>

#include "comm/base/check.hpp"
#include "device/lane_impl.hpp"

namespace sprat {

using device::CollectiveShape;
using device::CollectiveTerms;
using device::Operand;

namespace {

/// Of a collective: what the caller has, cut in blocks as all ranks' operands are.
struct Side {
  const void* memory = nullptr;
  DType dtype = DType::u8;
  std::size_t blocks = 0;       ///< 0: this rank lacks it.
  std::size_t most_blocks = 0;  ///< Of whoever has the most.
  std::size_t first_block = 0;  ///< Where it lies in the stand-in.
};

struct Posted {
  const char* name = "";
  Side in = {}, out = {};
  std::size_t count = 0;  ///< Elements of a block.
  bool one_stand_in = true;
  bool whole = false;        ///< Never cut: peers may be no lanes.
  std::size_t cut_size = 0;  ///< As in CollectiveShape.
  CollectiveTerms terms;
  DeviceStream stream = nullptr;
};

DeviceWork post(device::LaneCore& core, Posted call) {
  device::Operation* const operation = core.open(call.stream, call.name);
  DeviceWork work(operation);
  const auto take = [&](const Side& side, std::vector<Operand>& operands) {
    const std::size_t size = size_of(side.dtype);
    if (side.blocks > 0 && call.count > 0) {
      Operand operand = core.operand(side.memory, side.blocks * call.count * size, call.name);
      operand.blocks = side.blocks;
      operand.stride = call.count * size;
      operand.size = size;
      operand.first_block = side.first_block;
      operands.push_back(operand);
    }
  };
  take(call.in, operation->inputs);
  take(call.out, operation->outputs);
  operation->chunks = device::Chunks(
      CollectiveShape{.count = call.count,
                      .in = {call.in.most_blocks, size_of(call.in.dtype)},
                      .out = {call.out.most_blocks, size_of(call.out.dtype)},
                      .one_stand_in = call.one_stand_in,
                      .cut_size = call.cut_size},
      call.whole ? std::numeric_limits<std::size_t>::max() : core.options().chunk_bytes);
  call.terms.in = call.in.dtype;
  call.terms.out = call.out.dtype;
  operation->terms = std::move(call.terms);
  core.post(*operation, call.stream);
  return work;
}

void check_root(int root, const Communicator& group) {
  require(root >= 0 && root < group.size(), "root is ", root, "; ", group.name(),
          " has ranks 0 to ", group.size() - 1);
}

/// Here, and not when the message starts: a rank alone would then fail for all.
void check_message(const char* what, int peer, int tag, const Communicator& group) {
  require(peer >= 0 && peer < group.size(), what, " is ", peer, "; ", group.name(),
          " has ranks 0 to ", group.size() - 1);
  require(tag >= 0, "tag is ", tag, "; it must not be negative");
}

/// `whole` is as many blocks as ranks, each as long as `part`.
void check_blocks(ConstElements whole, ConstElements part, const Communicator& group) {
  require(whole.count == part.count * static_cast<std::size_t>(group.size()), "whole has ",
          whole.count, " elements and part ", part.count, "; of ", group.size(),
          " ranks whole has that many times part's");
}

void check_same_type(ConstElements a, ConstElements b) {
  require(a.dtype == b.dtype, "operands are of ", name(a.dtype), " and ", name(b.dtype),
          "; they must be of one type");
}

std::byte* block_at(const Communicator& group, std::byte* whole, std::size_t count, DType dtype) {
  return whole + static_cast<std::size_t>(group.rank()) * count * size_of(dtype);
}

std::size_t ranks_of(const Communicator& group) { return static_cast<std::size_t>(group.size()); }

// How each is started; `in` and `out` are where the stand-ins begin, equal if they are one.
Work start_all_reduce(Communicator& group, const CollectiveTerms& terms, std::byte* in,
                      std::byte* out, std::size_t count) {
  if (in == out) {
    return group.all_reduce(Elements{out, count, terms.out}, terms.op, terms.options);
  }
  return group.all_reduce({in, count, terms.in}, Elements{out, count, terms.out}, terms.op,
                          terms.options);
}

Work start_all_gather(Communicator& group, const CollectiveTerms& terms, std::byte*, std::byte* out,
                      std::size_t count) {
  return group.all_gather({block_at(group, out, count, terms.out), count, terms.out},
                          {out, count * ranks_of(group), terms.out}, terms.options);
}

Work start_reduce_scatter(Communicator& group, const CollectiveTerms& terms, std::byte* in,
                          std::byte* out, std::size_t count) {
  std::byte* const part = in == out ? block_at(group, in, count, terms.in) : out;
  return group.reduce_scatter({in, count * ranks_of(group), terms.in}, {part, count, terms.out},
                              terms.op, terms.options);
}

Work start_broadcast(Communicator& group, const CollectiveTerms& terms, std::byte* in, std::byte*,
                     std::size_t count) {
  return group.broadcast({in, count, terms.in}, terms.peer, terms.options);
}

Work start_all_to_all(Communicator& group, const CollectiveTerms& terms, std::byte* in,
                      std::byte* out, std::size_t count) {
  return group.all_to_all({in, count * ranks_of(group), terms.in},
                          {out, count * ranks_of(group), terms.out}, terms.options);
}

Work start_reduce(Communicator& group, const CollectiveTerms& terms, std::byte* in, std::byte* out,
                  std::size_t count) {
  return group.reduce({in, count, terms.in}, {out, count, terms.out}, terms.peer, terms.op,
                      terms.options);
}

Work start_gather(Communicator& group, const CollectiveTerms& terms, std::byte*, std::byte* out,
                  std::size_t count) {
  return group.gather({block_at(group, out, count, terms.out), count, terms.out},
                      {out, count * ranks_of(group), terms.out}, terms.peer, terms.options);
}

Work start_scatter(Communicator& group, const CollectiveTerms& terms, std::byte* in, std::byte*,
                   std::size_t count) {
  return group.scatter({in, count * ranks_of(group), terms.in},
                       {block_at(group, in, count, terms.in), count, terms.in}, terms.peer,
                       terms.options);
}

Work start_send(Communicator& group, const CollectiveTerms& terms, std::byte* in, std::byte*,
                std::size_t count) {
  return group.send({in, count, terms.in}, terms.peer, terms.tag, terms.options);
}

Work start_recv(Communicator& group, const CollectiveTerms& terms, std::byte*, std::byte* out,
                std::size_t count) {
  return group.recv({out, count, terms.out}, terms.peer, terms.tag, terms.options);
}

Work start_barrier(Communicator& group, const CollectiveTerms& terms, std::byte*, std::byte*,
                   std::size_t) {
  return group.start_barrier(terms.options);
}

/// All terms but the types, which post() sets.
CollectiveTerms terms_of(CollectiveTerms::Start* start, const Options& options, int peer = 0) {
  CollectiveTerms terms;
  terms.start = start;
  terms.peer = peer;
  terms.options = options;
  return terms;
}

CollectiveTerms terms_of(CollectiveTerms::Start* start, const Options& options, const Reduction& op,
                         int peer = 0) {
  CollectiveTerms terms = terms_of(start, options, peer);
  terms.op = op;
  return terms;
}

}  // namespace

DeviceWork DeviceLane::all_reduce(ConstElements in, Elements out, const Reduction& op,
                                  DeviceStream stream, Options options) {
  require(in.count == out.count, "in has ", in.count, " elements and out ", out.count,
          "; an all_reduce has as many of both");
  return post(*impl_->core, {.name = "all_reduce",
                             .in = {in.data, in.dtype, 1, 1},
                             .out = {out.data, out.dtype, 1, 1},
                             .count = in.count,
                             .one_stand_in = in.dtype == out.dtype,
                             .terms = terms_of(start_all_reduce, options, op),
                             .stream = stream});
}

DeviceWork DeviceLane::all_gather(ConstElements part, Elements whole, DeviceStream stream,
                                  Options options) {
  const Communicator& group = impl_->core->communicator();
  check_blocks(whole, part, group);
  check_same_type(part, whole);
  const auto rank = static_cast<std::size_t>(group.rank());
  return post(*impl_->core, {.name = "all_gather",
                             .in = {part.data, part.dtype, 1, 1, rank},
                             .out = {whole.data, whole.dtype, ranks_of(group), ranks_of(group)},
                             .count = part.count,
                             .terms = terms_of(start_all_gather, options),
                             .stream = stream});
}

DeviceWork DeviceLane::reduce_scatter(ConstElements whole, Elements part, const Reduction& op,
                                      DeviceStream stream, Options options) {
  const Communicator& group = impl_->core->communicator();
  check_blocks(whole, part, group);
  const bool one = whole.dtype == part.dtype;
  const auto rank = static_cast<std::size_t>(group.rank());
  return post(*impl_->core, {.name = "reduce_scatter",
                             .in = {whole.data, whole.dtype, ranks_of(group), ranks_of(group)},
                             .out = {part.data, part.dtype, 1, 1, one ? rank : 0},
                             .count = part.count,
                             .one_stand_in = one,
                             .terms = terms_of(start_reduce_scatter, options, op),
                             .stream = stream});
}

DeviceWork DeviceLane::broadcast(ConstElements in, Elements out, int root, DeviceStream stream,
                                 Options options) {
  const Communicator& group = impl_->core->communicator();
  check_root(root, group);
  const bool is_root = group.rank() == root;
  require(!is_root || in.count == out.count, "in has ", in.count, " elements and out ", out.count,
          "; a broadcast has as many of both");
  if (is_root) {
    check_same_type(in, out);
  }
  // What the root has in place need not come back.
  const bool comes_out = !is_root || in.data != out.data;
  return post(*impl_->core, {.name = "broadcast",
                             .in = {in.data, out.dtype, is_root ? 1u : 0u, 1},
                             .out = {out.data, out.dtype, comes_out ? 1u : 0u, 1},
                             .count = out.count,
                             .terms = terms_of(start_broadcast, options, root),
                             .stream = stream});
}

DeviceWork DeviceLane::all_to_all(ConstElements in, Elements out, DeviceStream stream,
                                  Options options) {
  const Communicator& group = impl_->core->communicator();
  check_same_type(in, out);
  require(in.count == out.count && in.count % ranks_of(group) == 0, "in has ", in.count,
          " elements and out ", out.count, "; both are as many blocks as there are ranks, ",
          group.size());
  return post(*impl_->core, {.name = "all_to_all",
                             .in = {in.data, in.dtype, ranks_of(group), ranks_of(group)},
                             .out = {out.data, out.dtype, ranks_of(group), ranks_of(group)},
                             .count = in.count / ranks_of(group),
                             .one_stand_in = false,  // in place, blocks must be swapped
                             .terms = terms_of(start_all_to_all, options),
                             .stream = stream});
}

DeviceWork DeviceLane::reduce(ConstElements in, Elements out, int root, const Reduction& op,
                              DeviceStream stream, Options options) {
  const Communicator& group = impl_->core->communicator();
  check_root(root, group);
  const bool is_root = group.rank() == root;
  require(!is_root || in.count == out.count, "in has ", in.count, " elements and out ", out.count,
          "; a reduce has as many of both");
  // The root alone knows the type of what comes out. Of what is narrower than f32 that may be f32.
  const std::size_t size = size_of(in.dtype), widest = std::max(size, sizeof(float));
  return post(*impl_->core, {.name = "reduce",
                             .in = {in.data, in.dtype, 1, 1},
                             .out = {out.data, out.dtype, is_root ? 1u : 0u, 1},
                             .count = in.count,
                             .one_stand_in = in.dtype == out.dtype,
                             .cut_size = size == widest ? size : size + widest,
                             .terms = terms_of(start_reduce, options, op, root),
                             .stream = stream});
}

DeviceWork DeviceLane::gather(ConstElements part, Elements whole, int root, DeviceStream stream,
                              Options options) {
  const Communicator& group = impl_->core->communicator();
  check_root(root, group);
  const bool is_root = group.rank() == root;
  if (is_root) {
    check_blocks(whole, part, group);
    check_same_type(part, whole);
  }
  return post(*impl_->core,
              {.name = "gather",
               .in = {part.data, part.dtype, 1, 1, static_cast<std::size_t>(group.rank())},
               .out = {whole.data, part.dtype, is_root ? ranks_of(group) : 0, ranks_of(group)},
               .count = part.count,
               .terms = terms_of(start_gather, options, root),
               .stream = stream});
}

DeviceWork DeviceLane::scatter(ConstElements whole, Elements part, int root, DeviceStream stream,
                               Options options) {
  const Communicator& group = impl_->core->communicator();
  check_root(root, group);
  const bool is_root = group.rank() == root;
  if (is_root) {
    check_blocks(whole, part, group);
    check_same_type(part, whole);
  }
  return post(*impl_->core,
              {.name = "scatter",
               .in = {whole.data, part.dtype, is_root ? ranks_of(group) : 0, ranks_of(group)},
               .out = {part.data, part.dtype, 1, 1, static_cast<std::size_t>(group.rank())},
               .count = part.count,
               .terms = terms_of(start_scatter, options, root),
               .stream = stream});
}

DeviceWork DeviceLane::send(ConstElements data, int to, int tag, DeviceStream stream,
                            Options options) {
  check_message("to", to, tag, impl_->core->communicator());
  Posted call{.name = "send",
              .in = {data.data, data.dtype, 1, 1},
              .count = data.count,
              .whole = true,
              .terms = terms_of(start_send, options, to),
              .stream = stream};
  call.terms.tag = tag;
  return post(*impl_->core, std::move(call));
}

DeviceWork DeviceLane::recv(Elements data, int from, int tag, DeviceStream stream,
                            Options options) {
  // Any source is this rank's own number, as far as the check goes.
  const Communicator& group = impl_->core->communicator();
  check_message("from", from == any_source ? group.rank() : from, tag, group);
  Posted call{.name = "recv",
              .out = {data.data, data.dtype, 1, 1},
              .count = data.count,
              .whole = true,
              .terms = terms_of(start_recv, options, from),
              .stream = stream};
  call.terms.tag = tag;
  return post(*impl_->core, std::move(call));
}

DeviceWork DeviceLane::barrier(DeviceStream stream, Options options) {
  return post(*impl_->core,
              {.name = "barrier", .terms = terms_of(start_barrier, options), .stream = stream});
}

}  // namespace sprat
