// The C API's fusion buffers.
#include "sprat/fusion.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "plugins/c/handles.hpp"
#include "plugins/c/op.hpp"

using namespace sprat;
using namespace sprat::c;

struct sprat_fusion {
  Fusion fusion;
};

namespace {

Fusion& fusion_of(sprat_fusion* fusion) { return deref(fusion, "fusion").fusion; }

FusionOptions fusion_options_from(std::size_t bucket_bytes, sprat_op op,
                                  const sprat_options* options) {
  // Asked for a type of 16 bits, output_dtype() gives another one only if f32_output is set.
  if (output_dtype(options, DType::bf16) != DType::bf16) {
    refuse("f32_output is set; a Fusion's results lie where its data were, in the same type");
  }
  FusionOptions result{.op = reduction_of(op), .timeout = options_from(options, true).timeout};
  if (bucket_bytes > 0) {
    result.bucket_bytes = bucket_bytes;
  }
  return result;
}

}  // namespace

sprat_status sprat_fusion_create(sprat_comm* comm, const size_t* counts, const sprat_dtype* dtypes,
                                 size_t parameters, size_t bucket_bytes, sprat_op op,
                                 const sprat_options* options, sprat_fusion** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    if (parameters > 0) {
      deref(counts, "counts");
      deref(dtypes, "dtypes");
    }
    std::vector<FusionParameter> list;
    for (size_t index = 0; index < parameters; ++index) {
      list.push_back({counts[index], dtype_from(dtypes[index])});
    }
    Fusion fusion(communicator_of(comm), std::move(list),
                  fusion_options_from(bucket_bytes, op, options));
    *out = std::make_unique<sprat_fusion>(sprat_fusion{std::move(fusion)}).release();
  });
}

sprat_status sprat_fusion_slot(sprat_fusion* fusion, size_t index, void** data) {
  return guard([&] { deref(data, "data") = fusion_of(fusion).slot(index).data; });
}

sprat_status sprat_fusion_put(sprat_fusion* fusion, size_t index, void* data, size_t count,
                              sprat_dtype dtype) {
  return guard([&] { fusion_of(fusion).put(index, {data, count, dtype_from(dtype)}); });
}

sprat_status sprat_fusion_flush(sprat_fusion* fusion, size_t* absent, size_t capacity,
                                size_t* absent_count) {
  return guard([&] {
    // A caller that does not want the indices gives no array.
    if (capacity > 0) {
      deref(absent, "absent");
    }
    const std::vector<std::size_t> indices = fusion_of(fusion).flush();
    std::copy_n(indices.begin(), std::min(capacity, indices.size()), absent);
    if (absent_count != nullptr) {
      *absent_count = indices.size();
    }
  });
}

sprat_status sprat_fusion_free(sprat_fusion* fusion) {
  return guard([&] { std::unique_ptr<sprat_fusion>{fusion}.reset(); });
}
