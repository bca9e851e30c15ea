// What a rank shows of itself, also while it hangs: its communicators, their last operations, and
// how much it has done so far.
//
// The page lies in a sealed memfd named "sprat-status", which another process of the same user
// finds under /proc/PID/fd. This rank writes it with plain stores; nobody else writes. Readers may
// be of another build: whoever changes the layout raises layout_version.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "comm/memory/segment.hpp"
#include "comm/status/status_search.hpp"

namespace sprat::comm::status {

constexpr const char* memfd_name = "sprat-status";
constexpr std::uint64_t magic = 0x7461727073'01ull;
constexpr std::uint32_t layout_version = 2;

/// A value with one writer, which a reader sees whole or not at all (a sequence lock).
template <class Value>
class Shown {
  static_assert(std::is_trivially_copyable_v<Value> && alignof(Value) == 8);

 public:
  template <class Change>
  void change(Change&& change) noexcept {
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);  // odd: being written
    std::atomic_thread_fence(std::memory_order_release);
    change(value_);
    version_.store(version + 2, std::memory_order_release);
  }

  /// The writer's own look.
  const Value& own() const noexcept { return value_; }

  /// Nothing if the writer stopped amid a change. The bytes are another process's: check them.
  std::optional<Value> read() const noexcept {
    constexpr int attempts = 1000;  // a change takes nanoseconds
    for (int attempt = 0; attempt < attempts; ++attempt) {
      const std::uint64_t version = version_.load(std::memory_order_acquire);
      if (version % 2 == 0) {
        Value value;
        std::memcpy(&value, &value_, sizeof value);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (version_.load(std::memory_order_relaxed) == version) {
          return value;
        }
      }
    }
    return std::nullopt;
  }

 private:
  std::atomic<std::uint64_t> version_;
  Value value_;
};

enum class State : std::uint8_t { none, queued, running, done, failed };

/// Times are CLOCK_MONOTONIC nanoseconds; 0: not yet.
struct Operation {
  static constexpr std::size_t most_awaited = 10;
  std::uint64_t sequence;
  std::byte signature[16];  ///< A collectives::Signature.
  std::uint64_t bytes;      ///< Of the caller's larger buffer.
  std::int64_t posted_ns, started_ns, ended_ns;
  char algorithm[16];  ///< Ends with its array if not before; so do all names.
  std::int32_t root;
  State state;
  std::uint8_t awaited;  ///< How many of `awaits` are valid; refreshed now and then.
  std::uint8_t late;     ///< The first so many of them are known not to have called it.
  std::uint8_t reserved;
  std::int32_t awaits[most_awaited];  ///< World ranks that it waits for.
};
static_assert(sizeof(Shown<Operation>) == 128);

struct Message {
  std::uint64_t number;  ///< Counts from 0 on this communicator.
  std::uint64_t bytes;   ///< Room, for a receive.
  std::int64_t posted_ns, ended_ns;
  std::int32_t peer;  ///< Rank of the communicator; -1: any.
  std::int32_t tag;
  State state;
  std::uint8_t sends;
  std::uint8_t reserved[6];
};

struct Membership {
  static constexpr std::size_t most_listed = 480;
  std::uint64_t id;
  std::int32_t in_use;
  std::int32_t rank, size;
  std::int32_t listed;  ///< How many of `world_ranks` are valid: all, if there is room.
  char name[64];
  std::int32_t world_ranks[most_listed];
};

struct Communicator {
  static constexpr std::size_t operations_kept = 32, messages_kept = 32;
  Shown<Membership> membership;
  std::atomic<std::uint64_t> posted, ended;      ///< Collective operations so far.
  Shown<Operation> operations[operations_kept];  ///< By sequence; those in flight come first.
  Shown<Message> messages[messages_kept];        ///< Those in flight are never overwritten.
};

/// What a rank has done since it joined. Only whoever holds the rank's token changes it, so a plain
/// load and store count: a reader may miss the last call, and never sees half a number.
struct Total {
  std::atomic<std::uint64_t> calls, bytes;
  void add(std::uint64_t more_bytes) noexcept {
    calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    bytes.store(bytes.load(std::memory_order_relaxed) + more_bytes, std::memory_order_relaxed);
  }
};

struct Totals {
  static constexpr std::size_t most_collectives = 16;
  Total collectives[most_collectives];  ///< By collectives::Collective; those that ended well.
  Total sends, receives;                ///< Called; the bytes of a receive are its room.
};

/// Constant from the moment that Page::magic is set.
struct About {
  std::int64_t pid;  ///< In the process's own namespace.
  std::int32_t rank, size;
  std::int32_t hosts, reserved;              ///< Of the job.
  std::int64_t started_ns, started_unix_ns;  ///< One moment on two clocks.
  char host[64];
  char job[80];  ///< The same on every rank of a job, and on no other's.
};

struct Failure {
  std::uint64_t failed;
  char text[1016];
};

struct Page {
  static constexpr std::size_t most_communicators = 1024;
  std::atomic<std::uint64_t> magic;  ///< Set last.
  std::uint32_t layout_version, reserved;
  std::uint64_t layout_bytes;
  std::atomic<std::int64_t> waiting_threads;  ///< In drive_until().
  std::atomic<std::int64_t> waited_ns;        ///< Of all threads, also of waits that go on.
  std::atomic<std::uint64_t> used;            ///< Places that were ever in use: the first ones.
  std::atomic<std::uint64_t> unlisted;        ///< Communicators for which there was no room.
  About about;
  Shown<Failure> failure;
  Totals totals;
  Communicator communicators[most_communicators];  ///< Memory is taken as they are touched.
};
static_assert(sizeof(Communicator) <= 8192 && alignof(Page) == 8);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Fits `text` into a name of the page, cut short if need be.
template <std::size_t size>
void put(char (&name)[size], std::string_view text) noexcept {
  std::memset(name, 0, size);
  text.copy(name, size);
}

/// The writer's end. Owner of the memory.
class Writer {
 public:
  /// Throws Error{unavailable}.
  explicit Writer(const About& about);

  /// A place for one more communicator; null if all are taken. One thread at a time.
  Communicator* open(std::uint64_t id, std::string_view name, int rank,
                     std::span<const int> world_ranks) noexcept;
  void close(Communicator* communicator) noexcept;
  /// Threads of this rank that wait. Relaxed: a hint.
  std::atomic<std::int64_t>& waiting_threads() { return page().waiting_threads; }
  /// Nanoseconds that they have waited, all together. Relaxed: a measure.
  std::atomic<std::int64_t>& waited_ns() { return page().waited_ns; }
  /// One thread at a time.
  Totals& totals() { return page().totals; }
  /// Once.
  void fail(std::string_view text) noexcept;

  /// As another process sees it. Throws Error{unavailable}.
  Reader read() const;

 private:
  Page& page() { return *reinterpret_cast<Page*>(memory_.data()); }
  Segment memory_;
};

}  // namespace sprat::comm::status
