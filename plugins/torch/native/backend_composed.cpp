// The two collectives that are made of others: a sparse all_reduce, and a barrier that names who
// does not come.
#include <algorithm>
#include <numeric>

#include "plugins/torch/native/backend.hpp"
#include "plugins/torch/native/elements.hpp"
#include "plugins/torch/native/errors.hpp"
#include "plugins/torch/native/store.hpp"

namespace sprat::pytorch {
namespace {

using Clock = std::chrono::steady_clock;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using namespace std::chrono_literals;

std::string listed(const std::vector<int>& ranks) {
  std::string out;
  for (const int rank : ranks) {
    out += (out.empty() ? "" : ", ") + std::to_string(rank);
  }
  return out;
}

std::chrono::milliseconds until(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()), 1ms);
}

}  // namespace

// Gathers what every rank has and sums it in rank order, so the bits are the same on all of them.
WorkPointer Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK_VALUE(tensors.size() == 1 && tensors.front().is_sparse() && tensors.front().is_cpu(),
                    "sprat's sparse all_reduce takes one sparse tensor on the CPU");
  TORCH_CHECK_VALUE(opts.reduceOp == c10d::ReduceOp::SUM,
                    "sprat adds sparse tensors up and can do ", "nothing else with them");
  const at::Tensor mine = tensors.front().coalesce();
  const Manner now{opts.timeout, false};
  at::Tensor count = at::tensor({mine._nnz()}, at::kLong);
  at::Tensor counts = at::empty({size_}, at::kLong);
  issue(calls::all_gather_single(counts, count), now);
  // Ranks have different numbers of indices, so each gather has parts of different lengths. Indices
  // and values have different types and are gathered one after the other.
  const auto gathered = [&](const at::Tensor& part) {
    Tensors parts;
    for (int rank = 0; rank < size_; ++rank) {
      auto sizes = part.sizes().vec();
      sizes.front() = counts[rank].item<std::int64_t>();
      parts.push_back(at::empty(sizes, part.options()));
    }
    issue(calls::all_gather(parts, part), now);
    return at::cat(parts);
  };
  const at::Tensor indices = gathered(mine._indices().t().contiguous()).t();
  const at::Tensor values = gathered(mine._values().contiguous());
  const at::Tensor sum =
      at::sparse_coo_tensor(indices, values, mine.sizes(), mine.options()).coalesce();
  tensors.front().copy_(sum);
  if (!opts.asyncOp) {
    return nullptr;
  }
  Operation done;
  done.type = c10d::OpType::_ALLREDUCE_SPARSE;
  done.title = "sprat:all_reduce_sparse";
  done.results = {tensors.front()};
  Observed observed;  // its parts have been told
  observed.type = done.type;
  observed.sequence = sequence_;
  return c10::make_intrusive<Work>(std::move(done), sprat::Work(), observer_,
                                   Work::Parts{observed});
}

// Goes by the store. An operation of the job would fail the whole job if a rank does not come, and
// this barrier is there to tell which one that is.
void Backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const auto timeout =
      opts.timeout == c10d::kUnsetTimeout ? observer_->timeouts->usual() : opts.timeout;
  const auto deadline = Clock::now() + timeout;
  const auto key = [this](std::uint64_t barrier, const std::string& whose) {
    return "sprat/monitored_barrier/" + std::to_string(barrier) + "/" + whose;
  };
  const auto shared = observer_->notes.store();
  TORCH_CHECK(shared, "the process group ", membership_.group, " has been destroyed");
  Store store(shared);
  const std::uint64_t barrier = monitored_barriers_++;
  if (rank_ != 0) {
    store.set(key(barrier, std::to_string(rank_)), "here");
    const auto verdict = store.get(key(barrier, "verdict"), until(deadline));
    TORCH_CHECK(verdict && *verdict == "all", "[Rank ", rank_, "]: Rank ", rank_,
                " successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from ",
                "rank 0: ",
                verdict.value_or("rank 0 does not answer within " +
                                 std::to_string(timeout.count()) + " ms"));
    return;
  }
  TORCH_CHECK(timeout > 0ms, "[Rank 0]: Rank 0 timed out in monitoredBarrier after ",
              timeout.count(), " ms; give it time for the others to come");
  std::vector<int> missing;
  for (int rank = 1; rank < size_ && (missing.empty() || wait_all_ranks); ++rank) {
    const std::string theirs = key(barrier, std::to_string(rank));
    if (store.get(theirs, until(deadline))) {
      store.remove(theirs);
    } else {
      missing.push_back(rank);
    }
  }
  if (missing.empty() && barrier > 0) {
    store.remove(key(barrier - 1, "verdict"));  // all have come here, so they have read it
  }
  const std::string failed = std::string(missing.size() == 1 ? "Rank " : "Ranks ") +
                             listed(missing) + " failed to pass monitoredBarrier in " +
                             std::to_string(timeout.count()) + " ms";
  store.set(key(barrier, "verdict"), missing.empty() ? "all" : failed);
  TORCH_CHECK(missing.empty(), "[Rank 0]: ", failed);
}

}  // namespace sprat::pytorch
