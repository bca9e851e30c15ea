#include "plugins/torch/native/observing/observer.hpp"

#include <c10/util/Exception.h>

#include <utility>

#include "plugins/torch/native/work.hpp"

namespace sprat::pytorch {
namespace {

/// Of the process, not of a group: PyTorch looks Works of all groups up by it, also after they are
/// gone.
std::uint64_t next_key() {
  static std::atomic<std::uint64_t> keys = 0;
  return keys.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Observer::Observer(GroupPlace place, Milliseconds timeout, std::shared_ptr<FlightTrace> trace)
    : notes(std::move(place.store), std::move(place.name), place.rank, place.size),
      ranks(std::move(place.ranks)),
      timeouts(std::make_shared<Timeouts>(timeout)),
      completion(std::make_shared<CompletionHook>()),
      abort_hooks(std::make_shared<HookTable<>>()),
      end_hooks(std::make_shared<EndHooks>()),
      trace_(trace && trace->records() ? std::move(trace) : nullptr) {}

Observer::Observer(GroupPlace place, const Observer& before)
    : notes(std::move(place.store), std::move(place.name), place.rank, place.size),
      ranks(std::move(place.ranks)),
      timeouts(before.timeouts),
      completion(before.completion),
      abort_hooks(before.abort_hooks),
      end_hooks(before.end_hooks),
      timing_(before.timing_.load(std::memory_order_relaxed)),
      trace_(before.trace_) {}

Observed Observer::begin(const Operation& operation, std::uint64_t sequence, Milliseconds asked,
                         const std::string& description) {
  Observed observed{.type = operation.type,
                    .sequence = sequence,
                    .deadline = timeouts->grant(asked),
                    .began = Observed::Clock::now(),
                    .entry = std::nullopt,
                    .timed = timing_.load(std::memory_order_relaxed),
                    .hooked = completion->is_set(),
                    .key = next_key()};
  if (observed.hooked) {
    completion->expect();
  }
  if (trace_) {
    std::call_once(known_, [&] { number_ = trace_->add_group(notes.group, description, ranks); });
    observed.entry = trace_->begin(
        operation, {.group = number_, .rank = notes.rank, .timeout = observed.deadline.timeout});
  }
  return observed;
}

void Observer::started(const Observed& observed, const sprat::Work& work) {
  if (trace_) {
    trace_->started(observed.entry, work);
  }
}

void Observer::end(const Observed& observed, const std::exception_ptr& failed,
                   Observed::Clock::time_point ended) {
  timeouts->give_back(observed.deadline);
  const std::chrono::duration<float, std::milli> lasted = ended - observed.began;
  const std::optional<float> duration =
      observed.timed ? std::optional<float>(lasted.count()) : std::nullopt;
  if (trace_) {
    trace_->end(observed.entry, failed == nullptr, duration);
  }
  if (!failed && end_hooks->any()) {
    end_hooks->call(observed.key, duration);
  }
  if (observed.hooked) {
    completion->tell(std::make_shared<c10d::WorkInfo>(observed.type, observed.sequence,
                                                      observed.began, ended, lasted));
  }
}

void Observer::call_abort_hooks() {
  if (abort_hooks->any() && !abort_told_.exchange(true)) {
    abort_hooks->call();
  }
}

void Observer::tell_of_failure(const std::exception_ptr& failed) {
  try {
    std::rethrow_exception(failed);
  } catch (const c10::ValueError&) {
    return;  // the caller's own mistake: the group goes on
  } catch (...) {
    call_abort_hooks();
  }
  if (trace_) {
    const auto rank = static_cast<std::size_t>(notes.rank);
    trace_->dump_after_failure(rank < ranks.size() ? static_cast<int>(ranks[rank]) : notes.rank);
  }
}

}  // namespace sprat::pytorch
