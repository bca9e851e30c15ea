// A storage is absent, in memory, on its way out, away, or on its way back. Memory goes only when
// the tier has said that its copy is whole, and a ticket only when nothing reads or writes for it.
#include "mp/activation_store.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat::mp {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Adds the time until it goes to a counter, and shows it.
class WaitClock {
 public:
  WaitClock(double& seconds, Tracer* tracer, const char* what)
      : seconds_(seconds), span_(tracer, TraceRow::stalls, what) {}
  ~WaitClock() { seconds_ += seconds_since(begin_); }
  WaitClock(const WaitClock&) = delete;
  WaitClock& operator=(const WaitClock&) = delete;

 private:
  double& seconds_;
  TraceSpan span_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

ActivationStore::ActivationStore(ActivationProgram program, const OffloadOptions& offload,
                                 io::Tier& tier, const ActivationStoreOptions& options)
    : program_(std::move(program)),
      offload_(offload),
      plan_(plan_activations(program_, offload)),
      buffers_(activation_buffers(program_, plan_)),
      planned_(memory::plan_slots(buffers_).total()),
      arena_(memory::plan_slots(buffers_), options.poison),
      tier_(tier),
      options_(options),
      held_(plan_.storages.size()),
      kept_(program_.kept.size()),
      kept_from_(program_.steps.size()),
      kept_to_(program_.steps.size()),
      step_seconds_(program_.steps.size()) {
  for (std::size_t number = 0; number < program_.kept.size(); ++number) {
    const KeptMemory& kept = program_.kept[number];
    kept_from_[static_cast<std::size_t>(kept.first)].push_back(static_cast<int>(number));
    kept_to_[static_cast<std::size_t>(kept.last)].push_back(static_cast<int>(number));
  }
}

ActivationStore::~ActivationStore() { restart(); }

void ActivationStore::begin_step() {
  require(!program_.steps.empty(), "a program without steps has none to begin");
  if (next_ == 0) {
    traffic_before_ = tier_.traffic();
  } else {
    end_times_of(next_ - 1);
  }
  collect_stores();
  for (const int number : plan_.loads[next_]) {
    want(number);
  }
  begin_loads();
  const TapeStep& step = program_.steps[next_];
  for (const int number : tape_of(step)) {
    step.pass == TapePass::forward ? make(number) : finish_load(number);
  }
  for (const int number : kept_from_[next_]) {
    kept_[static_cast<std::size_t>(number)] = lease(static_cast<int>(held_.size()) + number);
  }
  store_wait_before_ = counters_.store_wait_seconds;
  step_begin_ = std::chrono::steady_clock::now();
}

std::span<std::byte> ActivationStore::storage(int number) {
  const TapeStep& step = program_.steps[next_];
  require(step.tape != no_tape, "storage ", number, " is none of step ", next_,
          ", which has no tape");
  const Tape& tape = program_.tapes[static_cast<std::size_t>(step.tape)];
  require(std::ranges::count(tape.storages, number) > 0, "storage ", number, " is none of layer ",
          tape.layer, ", micro-batch ", tape.microbatch, ", whose step is under way");
  return bytes_of(number);
}

std::span<std::byte> ActivationStore::kept(int number) {
  const KeptMemory& kept = program_.kept.at(static_cast<std::size_t>(number));
  require(std::cmp_less_equal(kept.first, next_) && std::cmp_less_equal(next_, kept.last),
          kept.name, " is not there in step ", next_, ", which is under way");
  return {static_cast<std::byte*>(kept_[static_cast<std::size_t>(number)].data()), kept.bytes};
}

void ActivationStore::end_step() {
  end_stores_due();
  for (const int number : plan_.stores[next_]) {
    store(number);
  }
  for (const int number : plan_.drops[next_]) {
    drop(number);
  }
  for (const int number : kept_to_[next_]) {
    kept_[static_cast<std::size_t>(number)] = {};
  }
  collect_stores();
  if (next_ + 1 == program_.steps.size()) {
    end_times_of(next_);
    times_ = times_of_pass();
  }
  next_ = (next_ + 1) % program_.steps.size();
}

void ActivationStore::restart() noexcept {
  for (std::size_t number = 0; number < held_.size(); ++number) {
    drop(static_cast<int>(number));
  }
  for (memory::Lease& lease : kept_) {
    lease = {};
  }
  to_load_.clear();
  next_ = 0;
}

/// Waits for stores are the model's to tell: with another horizon they are others.
void ActivationStore::end_times_of(std::size_t step) {
  const double waited = counters_.store_wait_seconds - store_wait_before_;
  step_seconds_[step] = seconds_since(step_begin_) - waited;
}

std::optional<ActivationTimes> ActivationStore::times_of_pass() const {
  const io::TierTraffic traffic = tier_.traffic();
  const auto stored = static_cast<double>(traffic.stored_bytes - traffic_before_.stored_bytes);
  const auto loaded = static_cast<double>(traffic.loaded_bytes - traffic_before_.loaded_bytes);
  const double storing = traffic.store_seconds - traffic_before_.store_seconds;
  const double loading = traffic.load_seconds - traffic_before_.load_seconds;
  if (plan_.offloaded_bytes > 0 && stored == 0) {
    return std::nullopt;  // and so nothing was loaded
  }
  // Where all came back before it had left nothing is known of loads, and stores are the nearest.
  const double store_seconds = stored > 0 ? storing / stored : 0;
  const double load_seconds = loaded > 0 ? loading / loaded : store_seconds;
  ActivationTimes times{.steps = step_seconds_, .stores = {}, .loads = {}};
  for (const std::size_t bytes : program_.storage_bytes) {
    times.stores.push_back(static_cast<double>(bytes) * store_seconds);
    times.loads.push_back(static_cast<double>(bytes) * load_seconds);
  }
  return times;
}

std::optional<HorizonChoice> ActivationStore::choose_horizon() const {
  return times_ ? std::optional(mp::choose_horizon(program_, offload_, *times_)) : std::nullopt;
}

/// Loads begin later with less, so lives are parts of those that slots are planned for, and the
/// slots stay.
void ActivationStore::set_horizon(int horizon) {
  require(next_ == 0, "a horizon is set between passes, and step ", next_, " comes next");
  require(horizon >= 1 && horizon <= offload_.horizon, "a horizon of ", horizon,
          " was not planned for; memory is for 1 to ", offload_.horizon);
  OffloadOptions offload = offload_;
  offload.horizon = horizon;
  plan_ = plan_activations(program_, offload);
}

std::span<const int> ActivationStore::tape_of(const TapeStep& step) const {
  return step.tape == no_tape
             ? std::span<const int>()
             : std::span(program_.tapes[static_cast<std::size_t>(step.tape)].storages);
}

std::span<std::byte> ActivationStore::bytes_of(int number) {
  return {static_cast<std::byte*>(at(number).memory.data()),
          program_.storage_bytes[static_cast<std::size_t>(number)]};
}

memory::Lease ActivationStore::lease(int number) {
  // What has no bytes has no slot.
  const bool empty = buffers_[static_cast<std::size_t>(number)].bytes == 0;
  return empty ? memory::Lease() : arena_.take(number);
}

/// Memory for a storage; one that another tape's view has made stays.
void ActivationStore::make(int number) {
  Held& one = at(number);
  if (one.state == State::absent) {
    one.memory = lease(number);
    one.state = State::resident;
  }
}

void ActivationStore::want(int number) {
  Held& one = at(number);
  if (one.state == State::storing) {
    // It is still here, so its trip ends before it has begun to come back.
    tier_.forget(*std::exchange(one.ticket, std::nullopt));
    std::erase(storing_, number);
    one.state = State::resident;
  }
  if (one.state == State::resident) {
    ++counters_.forwarded;
    return;
  }
  to_load_.push_back(number);
}

/// In the order of use: a load that came later must not take the room of one that is due.
void ActivationStore::begin_loads() {
  while (!to_load_.empty() && load(to_load_.front())) {
    to_load_.pop_front();
  }
}

bool ActivationStore::load(int number) {
  Held& one = at(number);
  one.memory = lease(number);
  if (!tier_.load(*one.ticket, bytes_of(number))) {
    one.memory = {};
    return false;
  }
  one.state = State::loading;
  ++counters_.loads;
  return true;
}

void ActivationStore::finish_load(int number) {
  Held& one = at(number);
  if (one.state == State::resident) {
    return;
  }
  const WaitClock clock(counters_.stall_seconds, options_.tracer, "wait for load");
  while (one.state == State::away) {
    // Its load waits for room, so others are under way; as they end, those in front of it begin.
    const auto other = std::ranges::find(held_, State::loading, &Held::state);
    need(other != held_.end(), "tier ", tier_.name(), " takes no load of \"",
         buffers_[static_cast<std::size_t>(number)].name,
         "\", though none of this store is under way; a store needs a tier of its own");
    land(static_cast<int>(other - held_.begin()));
    begin_loads();
  }
  if (one.state == State::loading) {
    land(number);
  }
}

/// Waits for a load; its copy in the tier is not needed any more.
void ActivationStore::land(int number) {
  await(number);
  Held& one = at(number);
  tier_.forget(*std::exchange(one.ticket, std::nullopt));
  one.state = State::resident;
}

void ActivationStore::store(int number) {
  Held& one = at(number);
  const std::string& key = buffers_[static_cast<std::size_t>(number)].name;
  while (true) {
    one.ticket = tier_.store(bytes_of(number), key);
    if (one.ticket) {
      one.state = State::storing;
      storing_.push_back(number);
      ++counters_.stores;
      return;
    }
    if (storing_.empty()) {
      ++counters_.kept_for_room;  // nothing on its way out would make room: it stays
      return;
    }
    // A forward that outruns the tier waits here, so memory holds no more than the limit in flight.
    const WaitClock clock(counters_.store_wait_seconds, options_.tracer, "wait for store");
    await(storing_.front());
    collect_stores();
  }
}

void ActivationStore::collect_stores() {
  while (!storing_.empty() && tier_.done(*at(storing_.front()).ticket)) {
    Held& one = at(storing_.front());
    one.state = State::away;
    one.memory = {};
    storing_.pop_front();
  }
}

/// Those whose slots the plan gives to others from the next step on.
void ActivationStore::end_stores_due() {
  const auto is_due = [&](int number) {
    const StoragePlan& plan = plan_.storages[static_cast<std::size_t>(number)];
    return std::cmp_less_equal(plan.stored + store_steps, next_);
  };
  while (!storing_.empty() && is_due(storing_.front())) {
    const WaitClock clock(counters_.store_wait_seconds, options_.tracer, "wait for store");
    await(storing_.front());
    collect_stores();
  }
}

void ActivationStore::await(int number) {
  const io::Ticket ticket = *at(number).ticket;
  if (!tier_.wait(ticket, options_.patience)) {
    throw Error(ErrorCode::timeout,
                text("after ", options_.patience.count(), " ms there is no end of ",
                     tier_.describe(ticket), "; use a faster place, or offload less"));
  }
}

void ActivationStore::drop(int number) noexcept {
  Held& one = at(number);
  if (one.ticket) {
    tier_.forget(*std::exchange(one.ticket, std::nullopt));  // before its memory goes
  }
  std::erase(storing_, number);
  one.memory = {};
  one.state = State::absent;
}

}  // namespace sprat::mp
