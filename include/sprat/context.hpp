// Context parallelism: attention over sequences that are cut among ranks, so that a length which no
// rank's memory holds can be trained.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "sprat/communicator.hpp"
#include "sprat/export.hpp"
#include "sprat/layers.hpp"
#include "sprat/mp.hpp"

namespace sprat {

/// A run of positions in a sequence.
struct ContextPiece {
  int first = 0, count = 0;
  friend bool operator==(const ContextPiece&, const ContextPiece&) = default;
};

/// What rank `rank` of `ranks` has of every sequence, in the order of its rows: chunks number
/// `rank` and 2 ranks - 1 - rank of 2 ranks equal ones, so that all have as much to compute
/// (zigzag). Throws Error{invalid_argument} with the nearest length that can be cut so.
SPRAT_API std::array<ContextPiece, 2> context_pieces(int length, int ranks, int rank);

/// How ranks that share sequences exchange what attention needs.
struct ContextOptions {
  /// How keys and values come to the ranks that need them, SMP's word. "p2p": from rank to rank,
  /// two foreign chunks in memory at a time. "all_gather": all of them, by two collectives.
  std::string cp_comm_type = "p2p";
};

/// What one rank holds beside its own rows, and what comes to it from others.
struct ContextCost {
  std::size_t memory_bytes = 0;
  std::size_t forward_bytes = 0, backward_bytes = 0;
  friend bool operator==(const ContextCost&, const ContextCost&) = default;
};
/// Pure. `shape` is that of the whole. Throws Error{invalid_argument} as context_pieces().
SPRAT_API ContextCost context_cost(const layers::AttentionShape& shape, int ranks, int rank,
                                   const ContextOptions& options = {});

/// Causal self-attention of layers.hpp for ranks that each have context_pieces() of the sequences.
/// Both ways have the same bits forward; those of one rank that has all, if chunks are multiples of
/// attention_block positions and the products are those of "reference". Gradients of keys and
/// values are sums over ranks, in an order that depends on the way and on nothing else.
/// One call at a time, on any thread; all ranks make the same ones. A call that throws aborts the
/// job, since the others wait for this rank.
class SPRAT_API ContextAttention {
 public:
  /// Collective. `shape` is that of the whole: `length` is that of sequences before they are cut,
  /// and `sequences` the most of a call. Throws Error{mismatch} on every rank if ranks differ in it
  /// or in the options, and Error{invalid_argument} on every rank if all have what there is not.
  ContextAttention(Communicator& ranks, const layers::AttentionShape& shape,
                   const ContextOptions& options = {});
  ContextAttention(ContextAttention&&) noexcept;
  ContextAttention& operator=(ContextAttention&&) noexcept;
  ~ContextAttention();

  /// Of this rank: as many sequences, of its rows alone. Inputs, outputs and what is kept are as
  /// layers::attention_forward has them for this shape.
  const layers::AttentionShape& rank_shape() const noexcept;
  /// Collective, as layers::attention_forward. Workspaces are those of the whole shape.
  /// `sequences`: how many there are this time, the same on every rank. Empty: those of the shape.
  void forward(const GemmBackend& gemm, const layers::AttentionForward& pass,
               std::optional<int> sequences = {});
  /// Collective, as layers::attention_backward_input.
  void backward_input(const GemmBackend& gemm, const layers::AttentionBackward& pass,
                      std::optional<int> sequences = {});
  /// What this object holds as long as it lives: that of context_cost(), up to a whole page.
  std::size_t memory_bytes() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sprat
