// Writes a communicator's operations and messages to its rank's status page, as they come and go,
// and operations that have ended into its timeline, if it keeps one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "collectives/plan/signature.hpp"
#include "comm/context/context.hpp"
#include "comm/status/status_page.hpp"

namespace sprat::collectives {

/// A few plain stores a call; no system call, no lock, no throw. Token held, but for constructor
/// and destructor, which take it.
class Recorder {
 public:
  Recorder(std::shared_ptr<comm::Context> context, std::uint64_t communicator,
           std::string_view name, int rank, std::span<const int> world_ranks);
  ~Recorder();
  Recorder(const Recorder&) = delete;

  struct PostedCall {
    std::uint64_t sequence;
    const Signature& signature;
    std::uint64_t bytes;  ///< Of the caller's larger buffer.
    int root;
    comm::Clock::time_point posted;
  };
  /// Every call, as it comes.
  void called(std::uint64_t sequence);
  /// One that does not run at once; again, if that is known already, does nothing.
  void queued(const PostedCall& call);
  void running(const PostedCall& call, std::string_view algorithm);
  /// World ranks that the running operation waits for; the first `late` have not called it.
  void waits(std::uint64_t sequence, std::span<const int> ranks, std::size_t late);
  void ended(std::uint64_t sequence, comm::Clock::time_point now, bool well);
  /// called() and running() at once, of a call that finds nothing else in flight,
  void began(const PostedCall& call, std::string_view algorithm);
  /// and ended(), well.
  void over(std::uint64_t sequence, comm::Clock::time_point now);

  /// When the last operation ended; the next one ran from then on, if it was called by then.
  comm::Clock::time_point last_end() const { return last_end_; }

  /// Where a message is recorded.
  using Entry = comm::status::Shown<comm::status::Message>*;
  /// Null if too many are in flight.
  Entry posted(bool sends, int peer, int tag, std::size_t bytes, comm::Clock::time_point now);
  void ended(Entry entry, comm::Clock::time_point now, bool well);

 private:
  using Page = comm::status::Communicator;
  comm::status::Shown<comm::status::Operation>& entry(std::uint64_t sequence) {
    return page_->operations[sequence % Page::operations_kept];
  }

  void count(const comm::status::Operation& one) noexcept;
  void trace(const comm::status::Operation& ended) const noexcept;

  std::shared_ptr<comm::Context> context_;  ///< Shared by the communicators of a rank.
  comm::status::Totals& totals_;
  Tracer* tracer_ = nullptr;  ///< Null: nobody keeps a timeline.
  std::string name_;          ///< What is shown there as the place.
  Page* page_ = nullptr;      ///< Null where the page is full.
  comm::Clock::time_point last_end_{};
  std::uint64_t messages_ = 0;
};

}  // namespace sprat::collectives
