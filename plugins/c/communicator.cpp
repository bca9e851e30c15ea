// The C API's communicators, operations and memory, each a line of translation.
#include "sprat/communicator.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "plugins/c/handles.hpp"
#include "plugins/c/op.hpp"

namespace {

using namespace sprat;
using c::communicator_of;
using c::deref;
using c::dtype_from;
using c::guard;
using c::options_from;
using c::output_dtype;
using c::reduction_of;
using c::start;
using c::whole_count;

#define SPRAT_DTYPE(name, type, bytes) \
  static_assert(static_cast<int>(SPRAT_##name) == static_cast<int>(DType::name));
#include "sprat/dtypes.def"

Config config_from(const sprat_config* given) {
  Config config = Config::from_environment();
  if (given == nullptr) {
    return config;
  }
  // A struct of zeros means the environment's rank and size. Any other pair is meant, and must make
  // sense: a size of -3 once counted as the environment's.
  if (given->size != 0 || given->rank != 0) {
    if (given->rank < 0 || given->rank >= given->size) {
      c::refuse("size is " + std::to_string(given->size) + ", rank is " +
                std::to_string(given->rank) +
                "; the rank must be 0 or more, and below the size; size 0 and rank 0 mean the "
                "environment's");
    }
    config.size = given->size;
    config.rank = given->rank;
  }
  for (const std::int64_t timeout : {given->join_timeout_ms, given->timeout_ms}) {
    if (timeout < 0) {
      c::refuse("a timeout is " + std::to_string(timeout) + " ms; it must not be negative");
    }
  }
  const auto take = [](std::string& field, const char* value) {
    if (value != nullptr) {
      field = value;
    }
  };
  take(config.rendezvous, given->rendezvous);
  take(config.host, given->host);
  take(config.token, given->token);
  if (given->join_timeout_ms > 0) {
    config.join_timeout = std::chrono::milliseconds(given->join_timeout_ms);
  }
  if (given->timeout_ms > 0) {
    config.timeout = std::chrono::milliseconds(given->timeout_ms);
  }
  return config;
}

}  // namespace

const char* sprat_version(void) { return SPRAT_VERSION; }

const char* sprat_last_error(void) { return c::last_error().c_str(); }

sprat_status sprat_comm_join_growing(const sprat_config* config, sprat_comm** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    *out = std::make_unique<sprat_comm>(sprat_comm{Communicator::join_growing(config_from(config))})
               .release();
  });
}

sprat_status sprat_comm_join(const sprat_config* config, sprat_comm** out) {
  return guard([&] {
    // Set first, here and below: a caller that frees what it got finds null after an error.
    deref(out, "out") = nullptr;
    *out =
        std::make_unique<sprat_comm>(sprat_comm{Communicator::join(config_from(config))}).release();
  });
}

sprat_status sprat_comm_free(sprat_comm* comm) {
  return guard([&] { std::unique_ptr<sprat_comm>{comm}.reset(); });
}

sprat_status sprat_comm_rank(const sprat_comm* comm, int* out) {
  return guard([&] { deref(out, "out") = deref(comm, "comm").communicator.rank(); });
}

sprat_status sprat_comm_size(const sprat_comm* comm, int* out) {
  return guard([&] { deref(out, "out") = deref(comm, "comm").communicator.size(); });
}

sprat_status sprat_comm_split(sprat_comm* comm, int color, int key, sprat_comm** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    if (auto part = communicator_of(comm).split(color, key)) {
      *out = std::make_unique<sprat_comm>(sprat_comm{std::move(*part)}).release();
    }
  });
}

sprat_status sprat_comm_mark_step(sprat_comm* comm, int64_t step) {
  return guard([&] { communicator_of(comm).mark_step(step); });
}

sprat_status sprat_comm_abort(sprat_comm* comm, const char* reason) {
  return guard([&] { communicator_of(comm).abort(reason == nullptr ? "" : reason); });
}

sprat_status sprat_comm_revoke(sprat_comm* comm, const char* reason) {
  return guard([&] { communicator_of(comm).revoke(reason == nullptr ? "" : reason); });
}

sprat_status sprat_all_reduce(sprat_comm* comm, const void* in, void* out_data, size_t count,
                              sprat_dtype dtype, sprat_op op, const sprat_options* options,
                              sprat_work** out) {
  return start(options, out, [&](Options how) {
    const DType type = dtype_from(dtype);
    return communicator_of(comm).all_reduce(
        {in, count, type}, {out_data, count, output_dtype(options, type)}, reduction_of(op), how);
  });
}

sprat_status sprat_all_gather(sprat_comm* comm, const void* part, void* whole, size_t count,
                              sprat_dtype dtype, const sprat_options* options, sprat_work** out) {
  return start(options, out, [&](Options how) {
    auto& communicator = communicator_of(comm);
    const DType type = dtype_from(dtype);
    return communicator.all_gather({part, count, type},
                                   {whole, whole_count(communicator, count), type}, how);
  });
}

sprat_status sprat_reduce_scatter(sprat_comm* comm, const void* whole, void* part, size_t count,
                                  sprat_dtype dtype, sprat_op op, const sprat_options* options,
                                  sprat_work** out) {
  return start(options, out, [&](Options how) {
    auto& communicator = communicator_of(comm);
    const DType type = dtype_from(dtype);
    return communicator.reduce_scatter({whole, whole_count(communicator, count), type},
                                       {part, count, output_dtype(options, type)}, reduction_of(op),
                                       how);
  });
}

sprat_status sprat_broadcast(sprat_comm* comm, void* data, size_t count, sprat_dtype dtype,
                             int root, const sprat_options* options, sprat_work** out) {
  return start(options, out, [&](Options how) {
    return communicator_of(comm).broadcast({data, count, dtype_from(dtype)}, root, how);
  });
}

sprat_status sprat_all_to_all(sprat_comm* comm, const void* in, void* out_data, size_t count,
                              sprat_dtype dtype, const sprat_options* options, sprat_work** out) {
  return start(options, out, [&](Options how) {
    auto& communicator = communicator_of(comm);
    const DType type = dtype_from(dtype);
    const std::size_t whole = whole_count(communicator, count);
    return communicator.all_to_all({in, whole, type}, {out_data, whole, type}, how);
  });
}

sprat_status sprat_send(sprat_comm* comm, const void* data, size_t count, sprat_dtype dtype, int to,
                        int tag, const sprat_options* options, sprat_work** out) {
  return start(options, out, [&](Options how) {
    return communicator_of(comm).send({data, count, dtype_from(dtype)}, to, tag, how);
  });
}

sprat_status sprat_recv(sprat_comm* comm, void* data, size_t count, sprat_dtype dtype, int from,
                        int tag, const sprat_options* options, sprat_work** out) {
  return start(options, out, [&](Options how) {
    return communicator_of(comm).recv({data, count, dtype_from(dtype)}, from, tag, how);
  });
}

sprat_status sprat_barrier(sprat_comm* comm, const sprat_options* options) {
  return guard([&] { communicator_of(comm).barrier(options_from(options, true)); });
}

sprat_status sprat_work_wait(sprat_work* work) {
  return guard([&] { deref(work, "work").work.wait(); });
}

sprat_status sprat_work_test(sprat_work* work, int* done) {
  return guard([&] { deref(done, "done") = deref(work, "work").work.test() ? 1 : 0; });
}

sprat_status sprat_work_free(sprat_work* work) {
  return guard([&] { std::unique_ptr<sprat_work>{work}.reset(); });
}

sprat_status sprat_allocate(size_t bytes, sprat_memory** out, void** data) {
  return guard([&] {
    deref(out, "out") = nullptr;
    deref(data, "data") = nullptr;
    auto handle = std::make_unique<sprat_memory>(sprat_memory{Memory(bytes)});
    *data = handle->memory.data();
    *out = handle.release();
  });
}

sprat_status sprat_free_memory(sprat_memory* memory) {
  return guard([&] { std::unique_ptr<sprat_memory>{memory}.reset(); });
}
