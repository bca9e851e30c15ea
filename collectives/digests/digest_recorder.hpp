// Takes digests of a communicator's calls into its rank's log, as they come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "collectives/digests/chunks.hpp"
#include "collectives/digests/digest_file.hpp"
#include "collectives/digests/kept_values.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives::digests {

/// A collective, and where its buffers lie.
struct CallMemory {
  const Signature& signature;
  std::uint64_t sequence;
  int root;
  bool uneven;        ///< Blocks differ in length.
  DType result_type;  ///< The signature's says nothing of a reduce.
  Extents extents;
  const std::byte* input;
  const std::byte* result;
};

/// Does nothing unless Config::digests asks for it, which on() tells. Never waits and never throws;
/// what finds no room is counted, and the file says so. Token held, but for constructor and
/// destructor, which take it.
class DigestRecorder final {
 public:
  DigestRecorder(std::shared_ptr<comm::Context> context, std::uint64_t communicator,
                 std::string_view name, int rank, std::span<const int> world_ranks);
  ~DigestRecorder();
  DigestRecorder(const DigestRecorder&) = delete;

  bool on() const { return log_ != nullptr; }
  /// The communicator has failed: its calls end where they do for no reason of the program's.
  void note_failure() noexcept {
    if (on()) {
      log_->has_failed = true;
    }
  }

  // Of one collective at a time. A long buffer takes several calls, so that others get the token.
  /// True once its input is digested, before anything is written into it.
  bool take_input(const CallMemory& call) noexcept;
  /// True once its result is, while that is still the library's.
  bool take_result(const CallMemory& call) noexcept;
  /// Both, as far as they are not yet; and it is over.
  void over(const CallMemory& call, comm::Clock::time_point now) noexcept;

  // A message has a number among those with its peer and tag: the same on both sides.
  void sends(int peer, int tag, std::span<const std::byte> data,
             comm::Clock::time_point now) noexcept;
  /// The number, in the order in which messages are matched.
  std::uint64_t receives(int peer, int tag) noexcept;
  void received(int peer, int tag, std::uint64_t number, std::span<const std::byte> data,
                comm::Clock::time_point now) noexcept;

 private:
  void begin(const CallMemory& call);
  bool digest_some(std::span<const std::byte> buffer, std::size_t first) noexcept;
  void message_over(Call call, std::span<const std::byte> data, bool digested,
                    comm::Clock::time_point now) noexcept;
  void keep(const Call& call, Side side, ConstElements values) noexcept;
  void append(const Call& call, std::span<const std::uint64_t> digests) noexcept;
  void lose() noexcept;
  std::int64_t since_start(comm::Clock::time_point now) const;

  std::shared_ptr<comm::Context> context_;  ///< Shared by the communicators of a rank.
  comm::status::CallLog* log_ = nullptr;    ///< The context's; null: off.
  bool inputs_ = false;
  std::uint32_t group_ = 0;
  std::list<comm::status::CallLog::Replicas>::iterator replicas_;
  std::optional<KeptCall> wanted_;  ///< Only if it may be of this communicator.

  // Of the collective at hand.
  bool begun_ = false;
  std::uint64_t sequence_ = 0;
  std::int64_t step_ = -1;
  std::uint64_t order_ = 0;
  std::vector<std::uint64_t> digests_;  ///< The input's, then the result's.
  std::size_t inputs_taken_ = 0;        ///< So many of them are the input's.

  std::vector<std::uint64_t> message_digests_;  ///< Of the message at hand.

  std::uint64_t collectives_ = 0;  ///< Numbers of collectives,
  /// and of messages, by (kind, peer, tag).
  std::map<std::tuple<CallKind, int, int>, std::uint64_t> messages_;
};

}  // namespace sprat::collectives::digests
