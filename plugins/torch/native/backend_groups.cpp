// How a Backend comes to be, what it knows of itself, and how it ends.
#include <algorithm>
#include <numeric>
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
    Config config = Config::from_environment();
    config.rank = membership.rank;
    config.size = membership.size;
    config.join_timeout = membership.timeout;
    Store store(membership.store);
    return make(Communicator::join(config, store), membership);
  });
}

c10::intrusive_ptr<Backend> Backend::create_group(const std::vector<int>& members,
                                                  Membership membership) {
  membership.groups = membership_.groups;
  return guard([&] {
    return make(ranks()->create_group(members, membership.group, {.timeout = membership.timeout}),
                membership);
  });
}

c10::intrusive_ptr<Backend> Backend::make(sprat::Communicator ranks, const Membership& membership) {
  auto made = c10::make_intrusive<Backend>(std::move(ranks), membership);
  if (membership.groups) {
    membership.groups->add(made);
  }
  return made;
}

Backend::Backend(sprat::Communicator ranks, Membership membership)
    : c10d::Backend(membership.rank, membership.size),
      membership_(std::move(membership)),
      notes_(std::make_shared<Notes>(std::move(membership_.store), membership_.group,
                                     membership_.rank, membership_.size)),
      timeout_(membership_.timeout),
      ranks_(std::make_shared<sprat::Communicator>(std::move(ranks))) {}

Backend::~Backend() { shutdown(); }

std::shared_ptr<sprat::Communicator> Backend::ranks() {
  const std::lock_guard lock(mutex_);
  if (!ranks_) {
    throw Error(ErrorCode::invalid_argument,
                "the process group " + membership_.group + " has been destroyed");
  }
  return ranks_;
}

std::shared_ptr<sprat::Communicator> Backend::device_ranks() {
  {
    const std::lock_guard lock(mutex_);
    if (device_ranks_) {
      return device_ranks_;
    }
  }
  // Without the lock, since making the group waits for the other ranks. Only the lane's thread asks
  // for it, so it is made once.
  std::vector<int> all(static_cast<std::size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  auto made = std::make_shared<sprat::Communicator>(
      ranks()->create_group(all, membership_.group + "/device"));
  const std::lock_guard lock(mutex_);
  return device_ranks_ = std::move(made);
}

DeviceLane& Backend::lane(at::DeviceType type) {
  const std::lock_guard lock(mutex_);
  if (!lane_) {
    lane_ = open_device_lane(type);
  }
  return *lane_;
}

void Backend::settle_device() {
  DeviceLane* lane = nullptr;
  {
    const std::lock_guard lock(mutex_);
    lane = lane_.get();
  }
  if (lane != nullptr) {
    lane->settle();
  }
}

std::chrono::milliseconds Backend::or_default(std::chrono::milliseconds timeout) const {
  return timeout == c10d::kUnsetTimeout ? timeout_.load() : timeout;
}

void Backend::setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

c10::intrusive_ptr<Backend::Options> Backend::getBackendOptions() {
  auto options = c10::make_intrusive<Options>("sprat", timeout_.load());
  options->group_name = membership_.group;
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
                                .timeout = opts ? opts->timeout : timeout_.load(),
                                .group = std::move(name)});
}

void Backend::abort() {
  std::shared_ptr<sprat::Communicator> group;
  {
    const std::lock_guard lock(mutex_);
    group = ranks_;
  }
  if (group) {
    group->abort("the process group " + membership_.group + " was aborted");
  }
}

void Backend::shutdown() {
  std::shared_ptr<sprat::Communicator> group, device_group;
  std::unique_ptr<DeviceLane> lane;
  {
    const std::lock_guard lock(mutex_);
    group.swap(ranks_);
    device_group.swap(device_ranks_);
    lane.swap(lane_);
  }
  lane.reset();  // waits for what is under way, which may need the lock
  notes_->forget_store();
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
  auto work = c10::make_intrusive<Work>(
      all_of(std::move(batch.operations), c10d::OpType::COALESCED, "sprat:coalesced"),
      sprat::all_of(std::move(batch.works)), notes_, sequence_);
  // Users of coalesced gathers look at their tensors at once (DeepSpeed's MiCS does), so
  // collectives are done here. Sends and receives may depend on what the caller does next, so they
  // are not waited for.
  if (!batch.messages) {
    work->wait();
  }
  if (!batch.device_works.empty()) {
    batch.device_works.push_back(std::move(work));
    return c10::make_intrusive<Works>(std::move(batch.device_works));
  }
  return work;
}

}  // namespace sprat::pytorch
