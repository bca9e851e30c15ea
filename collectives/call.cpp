// A collective call of the public API: what is checked of it, and how it is posted.
#include "collectives/call.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "collectives/kernels/reduce.hpp"
#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

// Differences of pointers within one object reach no further. Sums of two such sizes do not wrap,
// nor does rounding one up to cache lines or pages.
constexpr auto most_bytes = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());

// So many elements of any type, of each of a million ranks, surely fit. This is asked of every
// call, and spares it a division.
constexpr std::size_t few = std::size_t{1} << 40;

bool fits_memory(ConstElements part, int ranks) {
  return part.count <= few ||
         part.count <= most_bytes / size_of(part.dtype) / static_cast<std::size_t>(ranks);
}

[[gnu::hot]] std::shared_ptr<Operation> operation_of(Communicator::Impl& impl, const Call& call,
                                                     const Options& options) {
  Problem problem;
  problem.collective = call.collective;
  problem.rank = impl.executor.membership().rank;
  problem.grouping = impl.grouping;
  problem.count = call.count;
  problem.counts = call.counts;
  problem.out_counts = call.out_counts;
  problem.input = call.in.dtype;
  problem.output = call.out.dtype;
  problem.op = call.op;
  problem.root = call.root;
  auto operation = std::make_shared<Operation>(impl.context, std::move(problem));
  operation->input = static_cast<const std::byte*>(call.in.data);
  operation->output = static_cast<std::byte*>(call.out.data);
  operation->stage_input = call.stage_input;
  operation->timeout =
      std::min(options.timeout.value_or(impl.context->config().timeout), longest_timeout);
  operation->digested = options.digested;
  return operation;
}

/// Tries the short path: true if the call is over already. Only calls that wait, have equal blocks
/// and an operation without a value of its own can take it. It digests all that it carries.
bool was_eager(Communicator::Impl& impl, const Call& call, const Options& options) {
  if (!options.blocking || !options.digested || call.counts ||
      call.op.op() >= ReduceOp::premultiplied_sum) {
    return false;
  }
  const auto make = [&] { return operation_of(impl, call, options); };
  return impl.executor.call_eagerly(
      signature_of(
          {call.collective, call.count, call.root, call.in.dtype, call.out.dtype, call.op.op()}),
      call.out.dtype, static_cast<const std::byte*>(call.in.data),
      static_cast<std::byte*>(call.out.data),
      std::ref(make));  // a reference fits into a std::function without allocation
}

}  // namespace

[[gnu::hot]] Work post(Communicator::Impl& impl, const Call& call, const Options& options) {
  check_process(impl);
  if (was_eager(impl, call, options)) {
    return Work();
  }
  const std::shared_ptr<Operation> operation = operation_of(impl, call, options);
  impl.executor.post(operation, options.blocking);
  if (options.blocking) {
    operation->wait();
    return Work();
  }
  operation->leave_unattended();
  return Work(operation);
}

void check_process(const Communicator::Impl& impl) { impl.context->require_here(); }

[[gnu::hot]] void check_rank(const char* what, int rank, int size) {
  require(rank >= 0 && rank < size, what, " is ", rank, "; it must be 0 to ", size - 1);
}

[[gnu::hot]] void check_memory(const char* what, ConstElements elements) {
  require(elements.data != nullptr || elements.count == 0, what, " is null but has ",
          elements.count, " elements");
  if (!fits_memory(elements, 1)) [[unlikely]] {
    require(false, what, " has ", elements.count, " ", name(elements.dtype),
            ", which is more than memory can hold");
  }
}

[[gnu::hot]] void check_blocks(const char* what, ConstElements part, int ranks) {
  if (!fits_memory(part, ranks)) [[unlikely]] {
    require(false, what, " has ", part.count, " ", name(part.dtype), "; that of ", ranks,
            " ranks is more than memory can hold");
  }
}

// Asked of every call, so the words are made only where they are said: evaluating the arguments of
// require() would cost each call something.
void check_types(DType in, DType out) {
  if (in != out) [[unlikely]] {
    require(false, "input is ", name(in), " and output ", name(out), "; they must be equal");
  }
}

[[gnu::hot]] void check_reduction(DType in, DType out, const Reduction& op) {
  if (in != out && out != accumulator_of(in, op.op())) [[unlikely]] {
    require(false, "input is ", name(in), " and output ", name(out),
            "; they must be equal, or narrower floats reduced to f32 by an operation of Sprat's");
  }
  require_takes(op.op(), in);
  require((op.op() == ReduceOp::user) == (op.user_op() != nullptr),
          "a user operation needs a function: see Reduction::user()");
  const bool fits =
      in == DType::f64 || std::fabs(op.factor()) <= double{std::numeric_limits<float>::max()};
  if (!fits) [[unlikely]] {
    require(false, describe(op), ": f32, in which this sum is held, has no such factor");
  }
}

[[gnu::hot]] void check_overlap(ConstElements in, Elements out, const void* in_place_input,
                                const void* in_place_output) {
  const auto* a = static_cast<const std::byte*>(in.data);
  const auto* b = static_cast<const std::byte*>(out.data);
  const bool empty = in.bytes() == 0 || out.bytes() == 0;
  const bool disjoint = empty || a + in.bytes() <= b || b + out.bytes() <= a;
  const bool in_place =
      in_place_input == in_place_output && size_of(in.dtype) == size_of(out.dtype);
  require(disjoint || in_place,
          "input and output overlap, but not as an in-place call would: a part that is also in the "
          "whole must lie at its own block");
}

[[gnu::hot]] std::shared_ptr<const BlockCounts> check_counts(const char* what,
                                                             std::span<const std::size_t> counts,
                                                             int ranks, const char* buffer,
                                                             std::size_t buffer_count) {
  require(counts.size() == static_cast<std::size_t>(ranks), what, " has ", counts.size(),
          " entries; it must have one for each of ", ranks, " ranks");
  std::size_t total = 0;
  for (const std::size_t count : counts) {
    require(count <= std::numeric_limits<std::size_t>::max() - total, what,
            " add up to more than memory can hold");
    total += count;
  }
  require(total == buffer_count, what, " add up to ", total, "; ", buffer, " has ", buffer_count,
          " elements");
  return std::make_shared<const BlockCounts>(
      std::vector<std::size_t>(counts.begin(), counts.end()));
}

const std::byte* block(const void* data, int index, std::size_t bytes) {
  return static_cast<const std::byte*>(data) + static_cast<std::size_t>(index) * bytes;
}

const std::byte* block(const void* data, const BlockCounts& counts, int index, DType dtype) {
  return static_cast<const std::byte*>(data) + counts.offset(index) * size_of(dtype);
}

}  // namespace sprat::collectives
