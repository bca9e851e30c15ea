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
/// The same, written.
struct Matrix {
  float* data = nullptr;
  int stride = 0;
};

/// Pieces that the backend "reference" cuts an inner dimension into, by halving it: the largest
/// tensor parallel degree at which its bits are those of one rank.
inline constexpr int virtual_tp = 4;

/// out <- alpha * a * b + beta * out, where a is rows x inner, b is inner x columns.
/// With beta 0 nothing is read from out. No overlap of out with a or b.
struct MatrixProduct {
  int rows = 0, columns = 0, inner = 0;
  float alpha = 1.0f;
  ConstMatrix a, b;
  float beta = 0.0f;
  Matrix out;
  /// Of how many parts of a longer inner dimension this is one, under tensor parallelism: part i of
  /// T begins at floor(inner * i / T). With "reference", alpha 1 and beta 0 the canonical sum of
  /// the parts has the bits of the whole product; it takes divisors of virtual_tp. Other backends
  /// make nothing of it, nor of the groups.
  int inner_parts = 1;
  /// The inner dimension is so many groups of equal length, one after another, and a part has a
  /// part of each, as of queries, keys and values. A piece of the sum is all groups' pieces of that
  /// number, in their order.
  int inner_groups = 1;
};

/// A library and kernel for matrix products. Any thread may multiply, on that thread alone.
/// Equal shapes and values give equal bits, whatever the thread, the alignment or the process;
/// another backend gives other bits, so the ranks of a job agree on one. "reference" has equal bits
/// on every machine, and each element's depend on its row of a and its column of b alone.
class SPRAT_API GemmBackend {
 public:
  virtual ~GemmBackend() = default;
  /// "openblas/SkylakeX" and so on, or "reference".
  virtual const std::string& name() const noexcept = 0;
  /// Into how many pieces it cuts an inner dimension so that its bits are those of one rank: of
  /// "reference" virtual_tp, of others 1. Whoever adds up anything else that tensor parallelism
  /// cuts does so by as many.
  virtual int sum_pieces() const noexcept = 0;
  virtual void multiply(const MatrixProduct& product) const = 0;
};

/// What backends are named for: "openblas", the default, whose kernels are "openblas/NAME", and
/// "reference".
SPRAT_API std::vector<std::string> gemm_backend_kinds();

/// How fast one backend was in the probe.
struct GemmRate {
  std::string backend;
  double gflops = 0;
};

/// The name of the OpenBLAS kernel that a short probe (about 20 ms) finds fastest here. The
/// library's own choice is kept unless another is clearly faster, so equal machines choose equally.
/// OPENBLAS_CORETYPE, where set, decides instead; so does a kernel that is open. Sets environment
/// variables while it runs: call it before threads that read the environment are started. Throws
/// Error{unavailable} without a BLAS.
SPRAT_API std::string choose_gemm_backend();
/// The probe's figures, those of the chosen backend first, those of "reference" last.
SPRAT_API std::vector<GemmRate> probe_gemm_backends();
/// For people, a line each: what of the environment makes matrix products clearly slower than this
/// machine's processor has them, such as OPENBLAS_CORETYPE, and what to type. By the probe of this
/// process; none if there was none yet.
SPRAT_API std::vector<std::string> gemm_warnings();
/// Opens a backend by name. A process has one kernel of OpenBLAS at a time, and "reference" beside
/// it: throws Error{unavailable} if this machine lacks the kernel or another one is still open.
/// Environment as above.
SPRAT_API std::shared_ptr<const GemmBackend> open_gemm_backend(std::string_view name);
/// Collective. Opens rank 0's choice on every rank, since equal bits need equal kernels: `wanted`,
/// a backend or what it is named for, if rank 0's machine has it, else what choose_gemm_backend()
/// says there. Throws on every rank if rank 0 can open none, and Error{unavailable} where this
/// machine lacks what it chose.
SPRAT_API std::shared_ptr<const GemmBackend> agree_on_gemm_backend(Communicator& world,
                                                                   std::string_view wanted = {});
/// The backends with their rates, and the libraries, for people; one line each.
SPRAT_API std::string describe_gemm_backends();

}  // namespace sprat
