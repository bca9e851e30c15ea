// One rank of one library, told by compare.py what to do: the same commands for every library.
//
// It connects to the socket that is its first argument and says "LIBRARY RANK PID". Then, a line
// each:
//   cell COLLECTIVE BYTES MEMORY   makes buffers and checks every element  -> ok, or what is wrong
//   batch CALLS                    meets the others, then calls            -> seconds a call, here
//   check                          clears, calls once, checks              -> ok, or what is wrong
//   quit
// BYTES is the whole buffer: all_reduce's, broadcast's, all_gather's output, reduce_scatter's
// input; send_recv's message, which goes to the rank half of all ranks further on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace compare {

enum class Collective {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  all_to_allv,
  send_recv,
  barrier
};

struct Cell {
  Collective collective = Collective::barrier;
  std::size_t in = 0, out = 0;  ///< Floats.
  std::size_t block = 0;        ///< Floats that a rank contributes to another.
  float* input = nullptr;
  float* output = nullptr;  ///< broadcast: the same as input.
};

class Library {
 public:
  Library(std::string library, int its_rank, int ranks)
      : name(std::move(library)), rank(its_rank), size(ranks) {}
  virtual ~Library() = default;
  /// `kind`: malloc, huge, or shared, which only some libraries know. Null: not to be had.
  virtual float* allocate(std::size_t bytes, const std::string& kind);
  virtual void release(float* memory, std::size_t bytes, const std::string& kind);
  /// Before the calls of a cell.
  virtual void prepare(const Cell&) {}
  virtual void call(const Cell& cell, int root) = 0;
  virtual void barrier() = 0;
  /// Whom send_recv sends to, and receives from.
  int next() const { return (rank + size / 2) % size; }
  int previous() const { return (rank + size - size / 2) % size; }

  const std::string name;
  const int rank, size;
};

/// Until "quit"; the program's exit code. `socket` is the controller's path.
int serve(Library& library, const char* socket);

}  // namespace compare
