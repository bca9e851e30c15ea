// The last calls of one communicator, so that ranks can compare them as text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/plan/signature.hpp"

namespace sprat::collectives {

/// A ring by sequence: the last calls, but at least all in flight and some before them. Its
/// executor's token is held.
class History {
 public:
  History();

  /// The call after the last one. `prior_calls_hash`: digest of the calls before it that
  /// completes_locally(); 0: none. `problem` may be null if is_plain(). `in_flight`: the oldest
  /// call that is.
  void add(const Signature& signature, std::uint64_t prior_calls_hash,
           std::shared_ptr<const Problem> problem, std::uint64_t in_flight);

  std::uint64_t next() const { return next_; }
  /// Whether words() can be had of a call that was made.
  bool remembers(std::uint64_t sequence) const;
  /// The text of a call; and, as nobody may have noticed a difference there, of the calls before it
  /// that completes_locally(). The same on every rank that made the same calls, however many each
  /// still has: a call is forgotten as soon as one that its words may name is.
  std::string words(std::uint64_t sequence) const;

 private:
  struct PastCall {
    Signature signature;
    std::uint64_t prior_calls_hash = 0;
    std::shared_ptr<const Problem> problem;  ///< Shared with its operation; null: is_plain().
  };
  void grow();
  const PastCall& at(std::uint64_t sequence) const {
    return calls_[sequence & (calls_.size() - 1)];
  }

  std::vector<PastCall> calls_;         ///< A power of two.
  std::uint64_t first_ = 0, next_ = 0;  ///< Calls [first_, next_) are there; other places are not.
};

}  // namespace sprat::collectives
