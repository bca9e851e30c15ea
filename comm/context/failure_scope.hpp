// How far a failure reaches on one rank: to one communicator, or to all of a domain.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/context/wait_policy.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {

/// The failure of one communicator, as this rank knows it. Any thread.
class FailureScope {
 public:
  struct About {
    std::uint64_t communicator = 0;
    /// Communicators of one domain fail together. Its own number: it fails alone.
    std::uint64_t domain = 0;
    std::string name = {};
    std::vector<int> world_ranks = {};
    /// It cannot fail without the whole job.
    bool with_job = false;
    /// Where peers of this host see that it has failed here; not touched once it is closed.
    std::atomic<std::uint32_t>* shown = nullptr;
  };
  explicit FailureScope(About about) : about_(std::move(about)), shown_(about_.shown) {}
  ~FailureScope() { delete first_.load(std::memory_order_acquire); }
  FailureScope(const FailureScope&) = delete;
  FailureScope& operator=(const FailureScope&) = delete;

  /// Null while the communicator is well. Set once, never changes.
  const Error* first() const noexcept { return first_.load(std::memory_order_acquire); }
  std::uint64_t communicator() const noexcept { return about_.communicator; }
  std::uint64_t domain() const noexcept { return about_.domain; }
  const std::string& name() const noexcept { return about_.name; }
  bool with_job() const noexcept { return about_.with_job; }
  bool has(int world_rank) const noexcept;

 private:
  friend class FailureScopes;
  bool set(const Error& error, WaitPolicy& wait_policy) noexcept;

  const About about_;
  std::atomic<std::uint32_t>* shown_;          ///< Guarded by the mutex of FailureScopes.
  std::atomic<const Error*> first_ = nullptr;  ///< Release on set: the Error is complete. Owned.
};

/// Those of one rank, and what it has heard of others. Any thread.
class FailureScopes {
 public:
  explicit FailureScopes(WaitPolicy& wait_policy) : wait_policy_(wait_policy) {}

  /// A communicator begins. It has failed already if its domain has, or the job.
  std::shared_ptr<const FailureScope> open(FailureScope::About about);
  /// It ends: from here on nobody is shown whether it has failed.
  void close(const FailureScope& scope) noexcept;

  /// The job has failed, and so has all that belongs to it. False if it had before.
  bool fail_all(const Error& error);
  /// A domain has failed, which may have communicators here, or get them later. True if one of them
  /// has failed by it.
  bool fail(std::uint64_t domain, const Error& error);
  /// A rank is lost: every domain has failed that it takes part in here. Those that had not before.
  std::vector<std::uint64_t> fail_those_with(int world_rank, const Error& error);

  /// What fails with a communicator of this rank; its own number if it has none of that number.
  std::uint64_t domain_of(std::uint64_t communicator);
  /// It has failed here, or is of a domain that has.
  bool has_failed(std::uint64_t communicator);
  /// A communicator of the same lowest bits has failed: messages of it may still be on their way,
  /// so no other gets a number with these.
  bool is_spent(std::uint64_t number, int bits);
  /// A communicator has failed that cannot fail without the job.
  bool job_follows();
  /// A communicator has been closed that had not failed: peers may still take what it sent last.
  bool some_ended_well();
  /// How many numbers are spent for ever.
  std::size_t spent();

 private:
  struct Domain {
    std::uint64_t number;
    Error error;
  };
  std::unique_lock<std::mutex> locked();
  bool fail_locked(std::uint64_t domain, const Error& error);
  const Error* cause_of(std::uint64_t domain) const;

  WaitPolicy& wait_policy_;
  std::mutex mutex_;  ///< Guards the rest. No other lock is taken while it is held.
  std::vector<std::shared_ptr<FailureScope>> scopes_;  ///< Shared with works that outlast them.
  std::optional<Error> job_;
  std::deque<Domain> failed_;  ///< Oldest first; the last ones.
  bool job_follows_ = false, some_ended_well_ = false;
  std::set<std::uint64_t> spent_;  ///< Communicators of this rank that have failed.
};

}  // namespace sprat::comm
