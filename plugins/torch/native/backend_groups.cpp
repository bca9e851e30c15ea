// How a Backend comes to be, what it knows of itself, and how it ends.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <sstream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "plugins/torch/native/backend.hpp"
#include "plugins/torch/native/errors.hpp"
#include "plugins/torch/native/memory.hpp"

namespace sprat::pytorch {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

void Groups::add(const c10::intrusive_ptr<Backend>& group) {
  const std::lock_guard lock(mutex_);
  groups_.emplace_back(group);
}

void Groups::remove(const Backend& group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [&](const auto& one) { return one._unsafe_get_target() == &group; });
}

void Groups::leave() {
  std::vector<c10::weak_intrusive_ptr<Backend>> leaving;
  {
    const std::lock_guard lock(mutex_);
    leaving.swap(groups_);
  }
  // The newest first, without the lock: shutdown() comes back to remove().
  while (!leaving.empty()) {
    if (const auto group = leaving.back().lock()) {
      group->shutdown();
    }
    leaving.pop_back();
  }
}

std::size_t Groups::size() {
  const std::lock_guard lock(mutex_);
  return groups_.size();
}

c10::intrusive_ptr<Backend> Backend::join(Membership membership) {
  return guard([&] {
    if (membership.reconfigurable) {
      return make(std::nullopt, membership);
    }
    return make(join_job(membership), membership);
  });
}

sprat::Communicator Backend::join_job(const Membership& membership) {
  Config config = Config::from_environment();
  config.rank = membership.rank;
  config.size = membership.size;
  config.join_timeout = membership.timeout;
  Store store(membership.store);
  return Communicator::join(config, store);
}

c10::intrusive_ptr<Backend> Backend::create_group(const std::vector<int>& members,
                                                  Membership membership) {
  membership.groups = membership_.groups;
  return guard([&] {
    return make(ranks()->create_group(members, membership.group, {.timeout = membership.timeout}),
                membership);
  });
}

c10::intrusive_ptr<Backend> Backend::make(std::optional<sprat::Communicator> ranks,
                                          const Membership& membership) {
  auto made = c10::make_intrusive<Backend>(std::move(ranks), membership);
  if (membership.groups) {
    membership.groups->add(made);
  }
  return made;
}

namespace {

std::vector<std::uint64_t> ranks_or_all(const std::vector<std::uint64_t>& ranks, int size) {
  if (!ranks.empty()) {
    return ranks;
  }
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  return all;
}

GroupPlace place_of(const Membership& membership) {
  return {.store = membership.store,
          .name = membership.group,
          .rank = membership.rank,
          .size = membership.size,
          .ranks = ranks_or_all(membership.ranks, membership.size)};
}

/// No other group of any process has it.
std::string fresh_nonce() {
  std::random_device random;
  std::ostringstream out;
  out << std::hex << random() << '-' << random() << '-' << random();
  return out.str();
}

std::shared_ptr<sprat::Communicator> shared(std::optional<sprat::Communicator> ranks) {
  return ranks ? std::make_shared<sprat::Communicator>(std::move(*ranks)) : nullptr;
}

}  // namespace

Backend::Backend(std::optional<sprat::Communicator> ranks, Membership membership)
    : c10d::Backend(membership.rank, membership.size),
      membership_(std::move(membership)),
      observer_(
          std::make_shared<Observer>(place_of(membership_), membership_.timeout,
                                     membership_.groups ? membership_.groups->trace() : nullptr)),
      first_rank_(membership_.rank),
      nonce_(membership_.reconfigurable ? fresh_nonce() : ""),
      ranks_(shared(std::move(ranks))) {
  membership_.store = nullptr;  // observer_ has it, and lets go of it when the group ends
}

Backend::~Backend() { shutdown(); }

std::shared_ptr<sprat::Communicator> Backend::ranks_or_null() {
  const std::lock_guard lock(mutex_);
  return ranks_;
}

std::shared_ptr<sprat::Communicator> Backend::ranks() {
  auto group = ranks_or_null();
  if (!group) {
    throw Error(ErrorCode::invalid_argument,
                "the process group " + membership_.group +
                    (membership_.reconfigurable ? " has no ranks; call its reconfigure() first"
                                                : " has been destroyed"));
  }
  return group;
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  observer_->timeouts->set_usual(timeout);
}

void Backend::addEphemeralTimeout(const std::chrono::milliseconds& extra) {
  observer_->timeouts->extend(extra);
}

void Backend::enableCollectivesTiming() { observer_->enable_timing(); }

void Backend::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  observer_->completion->set(std::move(hook));
  onCompletionHook_ = [](const std::shared_ptr<c10d::WorkInfo>&) {};  // for hasHooks()
}

void Backend::waitForPendingWorks() { observer_->completion->wait(); }

void Backend::registerAbortHook(std::int64_t number, HookTable<>::Function hook) {
  observer_->abort_hooks->add(number, std::move(hook));
}

void Backend::unregisterAbortHook(std::int64_t number) { observer_->abort_hooks->remove(number); }

#if SPRAT_TORCH_HAS_COMPLETION_HOOKS
void Backend::registerCompletionHook(std::int64_t number, c10d::CompletionHook hook) {
  observer_->end_hooks->add(
      number, [hook = std::move(hook)](std::uint64_t key, std::optional<float> duration) {
        hook({.completionKey = key, .duration_ms = duration});
      });
}

void Backend::unregisterCompletionHook(std::int64_t number) {
  observer_->end_hooks->remove(number);
}
#endif

c10::intrusive_ptr<Backend::Options> Backend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("sprat", observer_->timeouts->usual());
  options->group_name = membership_.group;
  options->group_desc = pg_desc_;
  options->global_ranks_in_group = observer_->ranks;
  return options;
}

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  if (options.device().is_cpu()) {
    return guard([&] { return empty_shared({size}, dtype); });
  }
  return at::empty({size}, options);
}

c10d::ErrorType Backend::getError() {
  if (membership_.reconfigurable && (revoked_ || !ranks_or_null())) {
    // It is not ready, or not any more: reconfigure() makes it so, and no operation has failed.
    return c10d::ErrorType::SUCCESS;
  }
  const std::optional<Error> failure = guard([&] { return ranks()->failure(); });
  if (!failure) {
    return c10d::ErrorType::SUCCESS;
  }
  return failure->code() == ErrorCode::timeout     ? c10d::ErrorType::TIMEOUT
         : failure->code() == ErrorCode::lost_peer ? c10d::ErrorType::REMOTE_ERROR
                                                   : c10d::ErrorType::COMM_ERROR;
}

std::string Backend::flight_record() {
  return guard([&] { return ranks()->flight_record(); });
}

void Backend::write_trace(const std::string& path) {
  guard([&] { ranks()->write_trace(path); });
}

void Backend::note(const std::string& name, std::int64_t start_ns, std::int64_t end_ns) {
  using Clock = std::chrono::steady_clock;
  if (Tracer* tracer = guard([&] { return ranks()->tracer(); })) {
    tracer->add({.row = TraceRow::computes,
                 .name = name,
                 .start = Clock::time_point(std::chrono::nanoseconds(start_ns)),
                 .end = Clock::time_point(std::chrono::nanoseconds(end_ns))});
  }
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& members,
                                                 const c10::intrusive_ptr<Options>& opts) {
  const auto me = std::ranges::find(members, rank_);
  if (me == members.end()) {
    return nullptr;
  }
  const bool named = opts && !opts->group_name.empty();
  std::string name = named ? opts->group_name : membership_.group + "/split";
  if (!named) {
    for (const int rank : members) {
      name += ' ' + std::to_string(rank);
    }
  }
  return create_group(members, {.store = store,
                                .rank = static_cast<int>(me - members.begin()),
                                .size = static_cast<int>(members.size()),
                                .timeout = opts ? opts->timeout : observer_->timeouts->usual(),
                                .group = std::move(name),
                                .ranks = job_ranks(members)});
}

std::vector<std::uint64_t> Backend::job_ranks(const std::vector<int>& members) const {
  std::vector<std::uint64_t> ranks;
  for (const int member : members) {
    ranks.push_back(observer_->ranks.at(static_cast<std::size_t>(member)));
  }
  return ranks;
}

// The ranks that stay meet in the store and make a job of their own: what has failed the old one,
// or aborts its other groups, does not concern them, and nobody waits for those who are left out.
c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<std::int64_t>& excluded,
                                                  int flags,
                                                  const c10::intrusive_ptr<Options>& opts) {
  constexpr int abort_first = 1;  // torch.distributed.SHRINK_ABORT
  std::vector<int> members;
  std::string names;
  for (int rank = 0; rank < size_; ++rank) {
    if (std::ranges::find(excluded, std::int64_t{rank}) == excluded.end()) {
      members.push_back(rank);
      names += ' ' + std::to_string(rank);
    }
  }
  const auto me = std::ranges::find(members, rank_);
  TORCH_CHECK(me != members.end(), "rank ", rank_, " of group ", membership_.group,
              " is to be left out, so it must not call shrink()");
  const auto store = observer_->notes.store();
  TORCH_CHECK(store, "the process group ", membership_.group, " has been destroyed");
  if ((flags & abort_first) != 0) {
    abort();
  }
  const std::string prefix = "sprat/shrunk/" + std::to_string(shrunk_++) + "/of" + names;
  const bool named = opts && !opts->group_name.empty();
  return join({.store = c10::make_intrusive<c10d::PrefixStore>(prefix, store),
               .rank = static_cast<int>(me - members.begin()),
               .size = static_cast<int>(members.size()),
               .timeout = opts ? opts->timeout : observer_->timeouts->usual(),
               .group = named ? opts->group_name : membership_.group + "/shrunk to" + names,
               .ranks = job_ranks(members),
               .groups = membership_.groups});
}

void Backend::abort() {
  observer_->call_abort_hooks();
  revoked_ = true;
  std::shared_ptr<sprat::Communicator> group;
  {
    const std::lock_guard lock(mutex_);
    group = ranks_;
  }
  if (group) {
    group->abort("the process group " + membership_.group + " was aborted");
  }
}

// In place, since programs keep groups: FSDP2 its mesh's, a hook of communication the one it was
// registered with. The communicator that comes has the same ranks, all of them, in the same order.
void Backend::renew() {
  auto made = guard([&] { return ranks()->shrink(size_); });
  drop_ranks();
  revoked_ = false;
  const std::lock_guard lock(mutex_);
  ranks_ = std::make_shared<sprat::Communicator>(std::move(made));
}

void Backend::drop_ranks() {
  lanes_.close();  // first: what is under way ends on the communicators that it began on
  std::shared_ptr<sprat::Communicator> group;
  const std::lock_guard lock(mutex_);
  group.swap(ranks_);
}

void Backend::shutdown() {
  drop_ranks();
  observer_->notes.forget_store();
  if (membership_.groups) {
    membership_.groups->remove(*this);
  }
}

void Backend::startCoalescing() {
  const std::lock_guard lock(mutex_);
  const bool fresh = batches_.try_emplace(std::this_thread::get_id()).second;
  TORCH_CHECK(fresh, "startCoalescing() twice on a thread without endCoalescing()");
  batches_open_.fetch_add(1);
}

Backend::Batch* Backend::open_batch() {
  // Asked on every call, so the lock is spared while no thread has a batch open. Relaxed is enough:
  // only this thread's own batch matters, and a thread sees what it has written itself.
  if (batches_open_.load(std::memory_order_relaxed) == 0) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  const auto found = batches_.find(std::this_thread::get_id());
  // The pointer stays valid without the lock: the batch is this thread's alone, and what others do
  // to the map does not move it.
  return found == batches_.end() ? nullptr : &found->second;
}

WorkPointer Backend::endCoalescing() {
  Batch batch;
  {
    const std::lock_guard lock(mutex_);
    const auto found = batches_.find(std::this_thread::get_id());
    TORCH_CHECK(found != batches_.end(), "endCoalescing() without startCoalescing()");
    batch = std::move(found->second);
    batches_.erase(found);
    batches_open_.fetch_sub(1);
  }
  std::vector<WorkPointer> works;
  start_batch_on_devices(batch, works);
  if (batch.observed.empty() && works.size() == 1) {
    return works.front();
  }
  if (batch.observed.empty() && works.size() > 1) {
    return c10::make_intrusive<Works>(std::move(works));
  }
  if (batch.observed.empty()) {  // of no operations
    Observed nothing;
    nothing.type = c10d::OpType::COALESCED;
    nothing.sequence = sequence_;
    batch.observed.push_back(nothing);
  }
  auto work = c10::make_intrusive<Work>(
      all_of(std::move(batch.operations), c10d::OpType::COALESCED, "sprat:coalesced"),
      sprat::all_of(std::move(batch.works)), observer_, std::move(batch.observed));
  if (observer_->follows()) {
    work->follow();
  }
  // Users of coalesced gathers look at their tensors at once (DeepSpeed's MiCS does), so
  // collectives are done here. Sends and receives may depend on what the caller does next, so they
  // are not waited for. Those of a device are done by its streams.
  if (!batch.messages) {
    work->wait();
  }
  if (works.empty()) {
    return work;
  }
  works.push_back(std::move(work));
  return c10::make_intrusive<Works>(std::move(works));
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
namespace {

constexpr char handle_start[] = "sprat/";

/// Of a rank of the first group, "sprat/RANK/...": what follows is of this process and group.
int rank_in(const c10d::ReconfigureHandle& handle) {
  TORCH_CHECK(handle.starts_with(handle_start), "\"", handle,
              "\" is no reconfigure handle of sprat's");
  return std::atoi(handle.c_str() + std::strlen(handle_start));
}

}  // namespace

c10d::ReconfigureHandle Backend::get_reconfigure_handle() const {
  return handle_start + std::to_string(first_rank_) + "/" + nonce_;
}

// The ranks meet in the store of the first group, under the instance's number: whoever is named
// comes there, and nobody else has to know.
WorkPointer Backend::reconfigure(const c10d::ReconfigureOptions& opts) {
  TORCH_CHECK(membership_.reconfigurable, "the process group ", membership_.group,
              " was made without enable_reconfigure=True");
  std::vector<c10d::ReconfigureHandle> handles;
  if (const auto* ordered = std::get_if<std::vector<c10d::ReconfigureHandle>>(&opts.handles)) {
    handles = *ordered;
  } else {
    const auto& unordered = std::get<std::unordered_set<c10d::ReconfigureHandle>>(opts.handles);
    handles.assign(unordered.begin(), unordered.end());
    std::ranges::sort(handles, {}, rank_in);  // the order of the first group, on every rank
  }
  const auto me = std::ranges::find(handles, get_reconfigure_handle());
  TORCH_CHECK(me != handles.end(), "reconfigure(): none of the ", handles.size(),
              " handles is this rank's, ", get_reconfigure_handle());
  TORCH_CHECK(instances_.insert(opts.uuid).second, "reconfigure(): uuid ", opts.uuid,
              " was already used by this rank; each call takes a fresh one");
  const auto store = observer_->notes.store();
  TORCH_CHECK(store, "the process group ", membership_.group, " has been destroyed");
  drop_ranks();
  Membership next = membership_;
  next.store =
      c10::make_intrusive<c10d::PrefixStore>("sprat/instance/" + std::to_string(opts.uuid), store);
  next.rank = static_cast<int>(me - handles.begin());
  next.size = static_cast<int>(handles.size());
  next.timeout = opts.timeout.value_or(observer_->timeouts->usual());
  next.ranks.clear();
  for (const c10d::ReconfigureHandle& handle : handles) {
    next.ranks.push_back(static_cast<std::uint64_t>(rank_in(handle)));
  }
  auto made = guard([&] { return join_job(next); });
  rank_ = next.rank;
  size_ = next.size;
  GroupPlace place = place_of(next);
  place.store = store;  // of the first group, where the next instance meets, too
  observer_->notes.forget_store();
  observer_ = std::make_shared<Observer>(std::move(place), *observer_);
  revoked_ = false;
  {
    const std::lock_guard lock(mutex_);
    ranks_ = std::make_shared<sprat::Communicator>(std::move(made));
  }
  Operation done;
  done.title = "sprat:reconfigure";
  return c10::make_intrusive<Work>(std::move(done), sprat::Work(), observer_,
                                   Work::Parts{Observed{}});
}
#endif

}  // namespace sprat::pytorch
