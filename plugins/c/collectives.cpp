// The C API's collectives with a root, and those of blocks that differ in length.
#include "plugins/c/handles.hpp"
#include "plugins/c/op.hpp"

using namespace sprat;
using namespace sprat::c;

sprat_status sprat_reduce(sprat_comm* comm, const void* in, void* out_data, size_t count,
                          sprat_dtype dtype, sprat_op op, int root, const sprat_options* options,
                          sprat_work** out) {
  return start(options, out, [&](Options how) {
    const DType type = dtype_from(dtype);
    return communicator_of(comm).reduce({in, count, type},
                                        {out_data, count, output_dtype(options, type)}, root,
                                        reduction_of(op), how);
  });
}

sprat_status sprat_gather(sprat_comm* comm, const void* part, void* whole, size_t count,
                          sprat_dtype dtype, int root, const sprat_options* options,
                          sprat_work** out) {
  return start(options, out, [&](Options how) {
    auto& communicator = communicator_of(comm);
    const DType type = dtype_from(dtype);
    return communicator.gather({part, count, type}, {whole, whole_count(communicator, count), type},
                               root, how);
  });
}

sprat_status sprat_scatter(sprat_comm* comm, const void* whole, void* part, size_t count,
                           sprat_dtype dtype, int root, const sprat_options* options,
                           sprat_work** out) {
  return start(options, out, [&](Options how) {
    auto& communicator = communicator_of(comm);
    const DType type = dtype_from(dtype);
    return communicator.scatter({whole, whole_count(communicator, count), type},
                                {part, count, type}, root, how);
  });
}

sprat_status sprat_all_gatherv(sprat_comm* comm, const void* part, void* whole,
                               const size_t* counts, sprat_dtype dtype,
                               const sprat_options* options, sprat_work** out) {
  return start(options, out, [&](Options how) {
    auto& communicator = communicator_of(comm);
    const DType type = dtype_from(dtype);
    const auto blocks = counts_from(communicator, &deref(counts, "counts"));
    return communicator.all_gatherv(
        {part, blocks[static_cast<std::size_t>(communicator.rank())], type},
        {whole, total(blocks), type}, blocks, how);
  });
}

sprat_status sprat_reduce_scatterv(sprat_comm* comm, const void* whole, void* part,
                                   const size_t* counts, sprat_dtype dtype, sprat_op op,
                                   const sprat_options* options, sprat_work** out) {
  return start(options, out, [&](Options how) {
    auto& communicator = communicator_of(comm);
    const DType type = dtype_from(dtype);
    const auto blocks = counts_from(communicator, &deref(counts, "counts"));
    const std::size_t mine = blocks[static_cast<std::size_t>(communicator.rank())];
    return communicator.reduce_scatterv({whole, total(blocks), type},
                                        {part, mine, output_dtype(options, type)}, blocks,
                                        reduction_of(op), how);
  });
}

sprat_status sprat_gatherv(sprat_comm* comm, const void* part, size_t count, void* whole,
                           const size_t* counts, sprat_dtype dtype, int root,
                           const sprat_options* options, sprat_work** out) {
  return start(options, out, [&](Options how) {
    auto& communicator = communicator_of(comm);
    const DType type = dtype_from(dtype);
    // Only the root needs counts; the others may pass null.
    const bool here = communicator.rank() == root;
    const auto blocks = counts_from(communicator, here ? &deref(counts, "counts") : nullptr);
    return communicator.gatherv({part, count, type}, {whole, total(blocks), type}, blocks, root,
                                how);
  });
}

sprat_status sprat_scatterv(sprat_comm* comm, const void* whole, const size_t* counts, void* part,
                            size_t count, sprat_dtype dtype, int root, const sprat_options* options,
                            sprat_work** out) {
  return start(options, out, [&](Options how) {
    auto& communicator = communicator_of(comm);
    const DType type = dtype_from(dtype);
    // Only the root needs counts; the others may pass null.
    const bool here = communicator.rank() == root;
    const auto blocks = counts_from(communicator, here ? &deref(counts, "counts") : nullptr);
    return communicator.scatterv({whole, total(blocks), type}, {part, count, type}, blocks, root,
                                 how);
  });
}

sprat_status sprat_all_to_allv(sprat_comm* comm, const void* in, const size_t* in_counts,
                               void* out_data, const size_t* out_counts, sprat_dtype dtype,
                               const sprat_options* options, sprat_work** out) {
  return start(options, out, [&](Options how) {
    auto& communicator = communicator_of(comm);
    const DType type = dtype_from(dtype);
    const auto leaving = counts_from(communicator, &deref(in_counts, "in_counts"));
    const auto coming = counts_from(communicator, &deref(out_counts, "out_counts"));
    return communicator.all_to_allv({in, total(leaving), type}, {out_data, total(coming), type},
                                    leaving, coming, how);
  });
}
