// Eager calls on their short way: once all peers have announced the call, everything is there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "collectives/digests/chunks.hpp"
#include "collectives/engine/eager_plan.hpp"
#include "collectives/engine/local_peers.hpp"
#include "collectives/engine/operation.hpp"
#include "collectives/engine/plan_cache.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// Of one communicator. Its context's token is held.
class EagerCalls final {
 public:
  /// All that is borrowed outlives it.
  EagerCalls(comm::Context& context, const Membership& membership, LocalPeers& peers,
             const comm::FailureScope& scope);

  /// An eager call that was made before: no plan has to be looked for.
  struct Known {
    Signature signature;
    std::shared_ptr<const EagerPlan> eager;  ///< Shared with its place in the cache of plans.
    Arithmetic arithmetic;
    std::string_view algorithm;
    std::uint64_t bytes = 0;  ///< Of the caller's larger buffer.
    digests::Extents extents;
  };
  /// Null if it was not, with such results here: of those of a reduce, which its root alone has,
  /// the signature says nothing. Valid until the next remember().
  const Known* find(const Signature& signature, DType results) const {
    const Known& known = known_[place_of(signature)];
    return is(known, signature, results) ? &known : nullptr;
  }
  void remember(const Operation& operation, const Planned& planned);
  void forget() { known_ = {}; }

  /// A call as it is announced, and as it must be by peers.
  struct Announcement {
    const EagerPlan& eager;
    const Signature& signature;
    std::uint64_t prior_calls_hash, sequence;
  };
  /// Waits until this rank may announce it, for as long as it pays to hold the token. False if that
  /// takes longer.
  bool may_announce(const Announcement& call) {
    return peers_.may_open(call.sequence, call.eager.shown_bytes()) || may_announce_soon(call);
  }
  /// Opens this rank's slot for a call and announces it there, with its input.
  void announce(const Announcement& call, const std::byte* input);
  /// Waits for those that the call needs to announce the same, for as long as it pays to hold the
  /// token. False if it takes longer, or forever. `now` is set if another time has come meanwhile.
  bool wait(const Announcement& call, comm::Clock::time_point& now);
  /// Works out the result, once they have. False, and nothing has happened, if a peer's input was
  /// too long to be announced.
  bool finish(const EagerPlan& eager, const Arithmetic& arithmetic, std::uint64_t sequence,
              const std::byte* input, std::byte* output);

 private:
  static bool is(const Known& known, const Signature& signature, DType results) {
    return known.eager && known.signature == signature && known.arithmetic.output == results;
  }
  static constexpr std::size_t places = 16;
  static std::size_t place_of(const Signature& signature) {
    return (signature.count * 5 + signature.detail * 3 +
            static_cast<std::size_t>(signature.collective)) %
           places;
  }

  bool may_announce_soon(const Announcement& call);
  bool have_announced(const Announcement& call);
  template <class Done>
  bool rest_until(const Done& done, comm::Clock::time_point& now) const;

  comm::Context& context_;
  LocalPeers& peers_;
  const comm::FailureScope& scope_;
  const int rank_;
  std::array<Known, places> known_;
  std::vector<const std::byte*> inputs_;  ///< By rank.
  std::vector<Term> terms_;               ///< Of the reduction at hand.
};

}  // namespace sprat::collectives
