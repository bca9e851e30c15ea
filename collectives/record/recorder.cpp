#include "collectives/record/recorder.hpp"

#include <algorithm>
#include <cstring>

namespace sprat::collectives {
namespace {

using comm::Clock;
namespace status = comm::status;

std::int64_t ns(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

void show(status::Operation& shown, const Recorder::PostedCall& call,
          std::string_view algorithm = {}) {
  static_assert(sizeof shown.signature == sizeof call.signature);
  std::memcpy(shown.signature, &call.signature, sizeof call.signature);
  shown.sequence = call.sequence;
  shown.bytes = call.bytes;
  shown.root = call.root;
  shown.posted_ns = ns(call.posted);
  shown.started_ns = shown.ended_ns = 0;
  shown.awaited = shown.late = 0;
  comm::status::put(shown.algorithm, algorithm);
}

}  // namespace

Recorder::Recorder(std::shared_ptr<comm::Context> context, std::uint64_t communicator,
                   std::string_view name, int rank, std::span<const int> world_ranks)
    : context_(std::move(context)), totals_(context_->status().totals()), name_(name) {
  if (comm::timeline::RankRecord* record = context_->record()) {
    tracer_ = &record->ring();
  }
  const auto token = context_->take_token();
  page_ = context_->status().open(communicator, name, rank, world_ranks);
}

Recorder::~Recorder() {
  if (!context_->here()) {
    return;  // a child of fork(): the page is its parent's
  }
  const auto token = context_->take_token();
  context_->status().close(page_);
}

[[gnu::hot]] void Recorder::called(std::uint64_t sequence) {
  if (page_ != nullptr) {
    page_->posted.store(sequence + 1, std::memory_order_relaxed);
  }
}

void Recorder::queued(const PostedCall& call) {
  if (page_ == nullptr) {
    return;
  }
  const status::Operation& old = entry(call.sequence).own();
  if (old.state == status::State::queued || old.state == status::State::running) {
    return;  // those in flight that came first stay; this one shows when it runs
  }
  entry(call.sequence).change([&](status::Operation& shown) {
    show(shown, call);
    shown.state = status::State::queued;
  });
}

[[gnu::hot]] void Recorder::running(const PostedCall& call, std::string_view algorithm) {
  if (page_ == nullptr) {
    return;
  }
  entry(call.sequence).change([&](status::Operation& shown) {
    // There was no room for it while it was queued.
    if (shown.sequence != call.sequence || shown.state != status::State::queued) {
      show(shown, call);
    }
    shown.state = status::State::running;
    // Operations of a communicator run one after the other: this one could start when it was called
    // or when the last one ended, whichever was later. That spares a look at the clock.
    shown.started_ns = ns(std::max(call.posted, last_end_));
    comm::status::put(shown.algorithm, algorithm);
  });
}

void Recorder::waits(std::uint64_t sequence, std::span<const int> ranks, std::size_t late) {
  if (page_ == nullptr || entry(sequence).own().sequence != sequence) {
    return;
  }
  entry(sequence).change([&](status::Operation& shown) {
    const std::size_t fit = std::min(ranks.size(), status::Operation::most_awaited);
    shown.awaited = static_cast<std::uint8_t>(fit);
    shown.late = static_cast<std::uint8_t>(std::min(fit, late));
    std::copy_n(ranks.begin(), fit, shown.awaits);
  });
}

[[gnu::hot]] void Recorder::ended(std::uint64_t sequence, Clock::time_point now, bool well) {
  last_end_ = now;
  if (page_ == nullptr) {
    return;
  }
  page_->ended.store(sequence + 1, std::memory_order_relaxed);
  if (entry(sequence).own().sequence != sequence) {
    return;  // it failed while it was queued, and never had a place of its own
  }
  if (well) {
    count(entry(sequence).own());
  }
  entry(sequence).change([&](status::Operation& shown) {
    shown.ended_ns = ns(now);
    shown.state = well ? status::State::done : status::State::failed;
    shown.awaited = well ? 0 : shown.awaited;
  });
  if (tracer_ != nullptr) [[unlikely]] {
    trace(entry(sequence).own());
  }
}

// The entry was written by this thread a moment ago, so what kind of call it is costs no miss.
void Recorder::count(const status::Operation& one) noexcept {
  Signature call;
  std::memcpy(static_cast<void*>(&call), one.signature, sizeof call);
  static_assert(static_cast<std::size_t>(Collective::all_to_allv) <
                status::Totals::most_collectives);
  totals_.collectives[static_cast<std::size_t>(call.collective)].add(one.bytes);
}

[[gnu::hot]] void Recorder::began(const PostedCall& call, std::string_view algorithm) {
  if (page_ == nullptr) {
    return;
  }
  page_->posted.store(call.sequence + 1, std::memory_order_relaxed);
  entry(call.sequence).change([&](status::Operation& shown) {
    show(shown, call, algorithm);
    shown.started_ns = shown.posted_ns;
    shown.state = status::State::running;
  });
}

[[gnu::hot]] void Recorder::over(std::uint64_t sequence, Clock::time_point now) {
  last_end_ = now;
  if (page_ == nullptr) {
    return;
  }
  page_->ended.store(sequence + 1, std::memory_order_relaxed);
  count(entry(sequence).own());
  entry(sequence).change([&](status::Operation& shown) {
    shown.ended_ns = ns(now);
    shown.state = status::State::done;
  });
  if (tracer_ != nullptr) [[unlikely]] {
    trace(entry(sequence).own());
  }
}

// From when it could run, not from when it was called: calls of a communicator run one after the
// other, so what waits for another one is in nobody's way.
void Recorder::trace(const status::Operation& ended) const noexcept {
  if (ended.started_ns == 0) {
    return;  // it failed while it was queued
  }
  Signature signature;
  std::memcpy(static_cast<void*>(&signature), ended.signature, sizeof signature);
  const auto at = [](std::int64_t ns) { return Clock::time_point(std::chrono::nanoseconds(ns)); };
  const std::string_view algorithm(ended.algorithm, sizeof ended.algorithm);
  tracer_->add({.row = TraceRow::collectives,
                .name = collectives::name(signature.collective),
                .start = at(ended.started_ns),
                .end = at(ended.ended_ns),
                .bytes = ended.bytes,
                .sequence = static_cast<std::int64_t>(ended.sequence),
                .algorithm = algorithm.substr(0, algorithm.find('\0')),
                .place = name_});
}

Recorder::Entry Recorder::posted(bool sends, int peer, int tag, std::size_t bytes,
                                 Clock::time_point now) {
  (sends ? totals_.sends : totals_.receives).add(bytes);
  if (page_ == nullptr) {
    return nullptr;
  }
  const std::uint64_t number = messages_++;
  for (std::uint64_t attempt = 0; attempt < Page::messages_kept; ++attempt) {
    Entry entry = &page_->messages[(number + attempt) % Page::messages_kept];
    // Messages in flight are never overwritten: they are what a reader looks for.
    if (entry->own().state != status::State::running) {
      entry->change([&](status::Message& shown) {
        shown = {.number = number,
                 .bytes = bytes,
                 .posted_ns = ns(now),
                 .ended_ns = 0,
                 .peer = peer,
                 .tag = tag,
                 .state = status::State::running,
                 .sends = static_cast<std::uint8_t>(sends),
                 .reserved = {}};
      });
      return entry;
    }
  }
  return nullptr;
}

[[gnu::hot]] void Recorder::ended(Entry entry, Clock::time_point now, bool well) {
  if (entry != nullptr) {
    entry->change([&](status::Message& shown) {
      shown.ended_ns = ns(now);
      shown.state = well ? status::State::done : status::State::failed;
    });
  }
}

}  // namespace sprat::collectives
