// Splitting one model: so far the seam that every matrix product goes through.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/export.hpp"

namespace sprat {

/// A row-major f32 matrix; `stride` elements from one row to the next.
struct ConstMatrix {
  const float* data = nullptr;
  int stride = 0;
  bool transposed = false;  ///< The product takes its transpose.
};
struct Matrix {
  float* data = nullptr;
  int stride = 0;
};

/// out <- alpha * a * b + beta * out, where a is rows x inner, b is inner x columns.
/// With beta 0 nothing is read from out. No overlap of out with a or b.
struct MatrixProduct {
  int rows = 0, columns = 0, inner = 0;
  float alpha = 1.0f;
  ConstMatrix a, b;
  float beta = 0.0f;
  Matrix out;
};

/// A library and kernel for matrix products. Any thread may multiply, on that thread alone.
/// Equal shapes and values give equal bits, whatever the thread, the alignment or the process;
/// another backend gives other bits, so the ranks of a job agree on one.
class SPRAT_API GemmBackend {
 public:
  virtual ~GemmBackend() = default;
  /// "openblas/SkylakeX" and so on.
  virtual const std::string& name() const noexcept = 0;
  virtual void multiply(const MatrixProduct& product) const = 0;
};

/// How fast one backend was in the probe.
struct GemmRate {
  std::string backend;
  double gflops = 0;
};

/// The name of the backend that a short probe (about 20 ms) finds fastest here. The library's own
/// choice is kept unless another is clearly faster, so equal machines choose equally.
/// OPENBLAS_CORETYPE, where set, decides instead; so does a backend that is open. Sets environment
/// variables while it runs: call it before threads that read the environment are started. Throws
/// Error{unavailable} without a BLAS.
SPRAT_API std::string choose_gemm_backend();
/// The probe's figures, the chosen backend first.
SPRAT_API std::vector<GemmRate> probe_gemm_backends();
/// Opens a backend by name. A process has one kernel at a time: throws Error{unavailable} if this
/// machine lacks the kernel or another one is still open. Environment as above.
SPRAT_API std::shared_ptr<const GemmBackend> open_gemm_backend(std::string_view name);
/// Collective. Opens rank 0's choice on every rank, since equal bits need equal kernels: `wanted`
/// if rank 0's machine has it, else what choose_gemm_backend() says there. Throws on every rank if
/// rank 0 can open none, and Error{unavailable} where this machine lacks what it chose.
SPRAT_API std::shared_ptr<const GemmBackend> agree_on_gemm_backend(Communicator& world,
                                                                   std::string_view wanted = {});
/// The library, its version, and the kernels with their rates, for people; one line each.
SPRAT_API std::string describe_gemm_backends();

}  // namespace sprat
