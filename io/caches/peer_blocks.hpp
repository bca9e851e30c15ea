// Blocks that other hosts keep: asked for with a deadline, and served to those who ask.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "io/caches/block_peers.hpp"
#include "io/caches/host_cache.hpp"
#include "io/caches/peer_health.hpp"

namespace sprat::io {

struct PeerBlocksOptions {
  /// From a question to its answer; who waits longer reads the file.
  std::chrono::milliseconds deadline{1000};
  std::size_t asked_bytes = std::size_t{64} << 20;   ///< Under way to this host at most.
  std::size_t served_bytes = std::size_t{64} << 20;  ///< Being read for others at most.
};

enum class AskOutcome : std::uint8_t {
  fetched,
  absent,  ///< The owner does not have it: it may be given to it.
  failed,  ///< Late, busy, or not to be trusted.
};

/// Since it was made.
struct PeerCounts {
  std::uint64_t asked = 0, fetched_bytes = 0, absent = 0;
  std::uint64_t late = 0, busy = 0, garbage = 0;
  std::uint64_t served_bytes = 0, turned_away = 0;
  std::uint64_t given_blocks = 0, taken_blocks = 0;  ///< To owners; from others.
};

/// Any thread; no call waits, but for the destructor.
class PeerBlocks final {
 public:
  using Told = std::function<void(AskOutcome outcome)>;

  /// `cache` is what others are served from. `kept_bytes` says how long a block is that this host
  /// takes from others, 0 of one that it does not. Both, and the peers, outlive this.
  PeerBlocks(BlockPeers& peers, HostCache& cache,
             std::function<std::uint64_t(const BlockKey&)> kept_bytes,
             PeerBlocksOptions options = {});
  /// Whoever waits for an answer is told that it failed.
  ~PeerBlocks();
  PeerBlocks(const PeerBlocks&) = delete;
  PeerBlocks& operator=(const PeerBlocks&) = delete;

  /// False while the host is left alone after failures.
  bool may_ask(std::size_t host) const;
  /// Asks `host` for the block's bytes from `offset` on. `told` is called once, from a thread of
  /// this or the caller's, at the latest a little after the deadline; until then `into` stays.
  /// False if so much is under way, or the host is left alone or cannot be reached.
  bool ask(std::size_t host, const BlockKey& key, std::size_t offset, std::span<std::byte> into,
           Told told);
  /// Sends a whole block to the host that is to keep it. May fail without a word.
  void give(std::size_t host, const BlockKey& key, std::span<const std::byte> block,
            std::shared_ptr<const void> owner);
  PeerCounts counts() const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Question {
    std::size_t host = 0;
    BlockKey key;
    std::size_t offset = 0;
    std::span<std::byte> into;
    Told told;
    Time deadline;
  };

  void run();
  void take(ReceivedBlock message);
  void serve(const ReceivedBlock& message);
  void keep(ReceivedBlock message);
  void answer(ReceivedBlock message);
  void reply(std::size_t to, PeerHeader header, PeerVerb verb);
  bool begin_serving(std::size_t bytes);
  void end_serving(std::size_t bytes, bool sent);
  static AskOutcome outcome_of(const PeerHeader& header, const Question& question,
                               std::span<const std::byte> body);
  std::vector<Question> overdue(Time now);
  std::chrono::nanoseconds until_next_deadline() const;

  BlockPeers& peers_;
  HostCache& cache_;
  const std::function<std::uint64_t(const BlockKey&)> kept_bytes_;
  const PeerBlocksOptions options_;
  mutable std::mutex mutex_;                     // guards all below but the thread
  std::condition_variable served_;               // nothing is being read for others any more
  std::map<std::uint64_t, Question> questions_;  // by number, so the oldest first
  std::vector<PeerHealth> health_;
  std::uint64_t next_ = 1;
  std::size_t asked_bytes_ = 0, serving_bytes_ = 0;
  PeerCounts counts_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace sprat::io
