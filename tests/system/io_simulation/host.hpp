// Those who take batches: threads that decode, cores, reductions.
#pragma once

#include <cstdint>

namespace sprat::io_simulation {

/// A loop of training takes a batch, reduces gradients of what was before, and computes.
struct HostModel {
  double decode_s = 0;  ///< Of a batch, of all threads together; 0: batches are taken as they are.
  int decode_threads = 4;  ///< A core each while they decode.
  int decoded_ahead = 4;   ///< Batches.
  double cores = 0;        ///< For decoding and reductions; 0: more than both want.
  double reduce_s = 0;     ///< Of a batch, on one core that nobody else wants.
  std::uint64_t reduce_bytes = 0;
};

}  // namespace sprat::io_simulation
