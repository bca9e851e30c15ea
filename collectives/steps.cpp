// Steps: what calls are told by, and at which ranks compare what all must have alike.
#include <algorithm>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/communicator_impl.hpp"
#include "collectives/digests/replica_sums.hpp"
#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"

namespace sprat {

using collectives::digests::most_compared;
using collectives::digests::ReplicaFault;
using collectives::digests::ReplicaSum;

namespace {

/// Marks the step; what this rank has got so far, in as many places as are compared.
std::vector<ReplicaSum> mark(comm::Context& context, std::int64_t step) {
  const auto token = context.take_token();
  comm::status::CallLog& log = *context.call_log();
  log.step = step;
  std::vector<ReplicaSum> sums(most_compared);
  std::copy_n(log.replicas.begin(), std::min(log.replicas.size(), most_compared), sums.begin());
  return sums;
}

/// In the job's numbering.
std::vector<int> named(const std::vector<int>& world_ranks, const std::vector<int>& ranks) {
  std::vector<int> named;
  for (const int rank : ranks) {
    named.push_back(world_ranks[static_cast<std::size_t>(rank)]);
  }
  return named;
}

[[noreturn]] void tell_fault(comm::Context& context, const collectives::Membership& membership,
                             const ReplicaFault& fault, std::int64_t step) {
  const std::vector<int> wrong = named(membership.world_ranks, fault.wrong);
  const std::vector<int> right = named(membership.world_ranks, fault.right);
  const std::int64_t agreed = context.call_log()->steps_agreed_at;
  const Error error(
      ErrorCode::mismatch,
      text("results that all ranks must have alike differ before step ", step, ": ",
           comm::ranks_text(wrong),
           right.empty() ? std::string(" differ, and nothing tells which is right")
                         : text(wrong.size() == 1 ? " differs from " : " differ from ",
                                comm::ranks_text(right)),
           agreed < 0 ? std::string() : text("; they were alike before step ", agreed),
           "; sprat diff ", context.config().digests.folder, " names the call and the elements"),
      wrong.front());
  context.fail(error);
  throw error;
}

}  // namespace

// The comparison is a call like others, at the same place of every rank's calls, and so changes
// nobody's order. It is not digested: runs with and without it have the same calls.
void Communicator::mark_step(std::int64_t step) {
  collectives::check_process(*impl_);
  require(step >= 0, "step is ", step, "; it must not be negative");
  comm::Context& context = *impl_->context;
  if (context.call_log() == nullptr) {
    return;
  }
  // The sums are of the moment of the mark. Calls that are under way then are in the next ones, on
  // some ranks perhaps in these: different numbers of calls are not compared.
  const std::vector<ReplicaSum> mine = mark(context, step);
  const int every = context.config().digests.check;
  if (every == 0 || step % every != 0 || size() == 1) {
    return;
  }
  std::vector<ReplicaSum> all(mine.size() * static_cast<std::size_t>(size()));
  constexpr std::size_t words = sizeof(ReplicaSum) / sizeof(std::uint64_t);
  all_gather({mine.data(), words * mine.size(), DType::u64},
             {all.data(), words * all.size(), DType::u64},
             {.timeout = {}, .blocking = true, .digested = false})
      .wait();
  if (const auto fault = collectives::digests::find_fault(all, size())) {
    tell_fault(context, impl_->executor.membership(), *fault, step);
  }
  const auto token = context.take_token();
  context.call_log()->steps_agreed_at = step;
}

}  // namespace sprat
