// Open MPI and MPICH: compiled once with each one's mpicxx, which says which it is.
#include <mpi.h>

#include "bench/compare/driver.hpp"

namespace {

#if defined(OPEN_MPI)
constexpr const char* library_name = "openmpi";
#else
constexpr const char* library_name = "mpich";
#endif

int my_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int ranks() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

class Mpi final : public compare::Library {
 public:
  Mpi() : Library(library_name, my_rank(), ranks()) {}

  void prepare(const compare::Cell& cell) override {
    counts_.assign(static_cast<std::size_t>(size), static_cast<int>(cell.block));
    offsets_.clear();
    for (int peer = 0; peer < size; ++peer) {
      offsets_.push_back(peer * static_cast<int>(cell.block));
    }
  }

  void call(const compare::Cell& cell, int root) override {
    using compare::Collective;
    const int block = static_cast<int>(cell.block);
    switch (cell.collective) {
      case Collective::all_reduce:
        MPI_Allreduce(cell.input, cell.output, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
      case Collective::all_gather:
        MPI_Allgather(cell.input, block, MPI_FLOAT, cell.output, block, MPI_FLOAT, MPI_COMM_WORLD);
        return;
      case Collective::reduce_scatter:
        MPI_Reduce_scatter_block(cell.input, cell.output, block, MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
        return;
      case Collective::broadcast:
        MPI_Bcast(cell.output, block, MPI_FLOAT, root, MPI_COMM_WORLD);
        return;
      case Collective::all_to_all:
        MPI_Alltoall(cell.input, block, MPI_FLOAT, cell.output, block, MPI_FLOAT, MPI_COMM_WORLD);
        return;
      case Collective::all_to_allv:
        MPI_Alltoallv(cell.input, counts_.data(), offsets_.data(), MPI_FLOAT, cell.output,
                      counts_.data(), offsets_.data(), MPI_FLOAT, MPI_COMM_WORLD);
        return;
      case Collective::send_recv:
        MPI_Sendrecv(cell.input, block, MPI_FLOAT, next(), 0, cell.output, block, MPI_FLOAT,
                     previous(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
      case Collective::barrier:
        MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

 private:
  std::vector<int> counts_, offsets_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Mpi library;
  const int code = compare::serve(library, argc > 1 ? argv[1] : nullptr);
  MPI_Finalize();
  return code;
}
