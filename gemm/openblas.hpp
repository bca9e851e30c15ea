// OpenBLAS, loaded at run time as this library's own copy so that its kernel can be chosen.
#pragma once

#include <cblas.h>

#include <string>
#include <string_view>
#include <vector>

#include "sprat/mp.hpp"

namespace sprat::mp {

/// The process's private OpenBLAS. One BLAS thread: every product runs on the calling thread.
/// multiply() is for any thread; select() only while no product is under way.
class OpenBlas {
 public:
  /// Loads the library. Throws Error{unavailable} if there is none.
  OpenBlas();
  OpenBlas(const OpenBlas&) = delete;
  OpenBlas& operator=(const OpenBlas&) = delete;

  /// Kernels that this processor runs, the library's own choice first. Only that one if the user
  /// fixed it (OPENBLAS_CORETYPE) or the library cannot switch.
  const std::vector<std::string>& kernels() const noexcept { return kernels_; }
  /// What the user fixed the kernel by, "NAME=VALUE", and which that leaves out; else nothing.
  const std::string& fixed_by() const noexcept { return fixed_by_; }
  const std::vector<std::string>& ruled_out() const noexcept { return ruled_out_; }
  /// Switches to a kernel. False if it is neither among kernels() nor ruled_out().
  bool select(std::string_view kernel);
  /// The kernel in use, by OpenBLAS' name for it.
  std::string kernel() const;
  /// OpenBLAS' own description of its build.
  std::string build() const;
  void multiply(const MatrixProduct& product) const;

 private:
  bool restart(const char* kernel);
  void find_kernels();

  void* library_ = nullptr;  // never closed: OpenBLAS keeps thread-local memory that outlives us
  decltype(&cblas_sgemm) sgemm_ = nullptr;
  decltype(&openblas_get_corename) corename_ = nullptr;
  decltype(&openblas_get_config) config_ = nullptr;
  void (*stop_)() = nullptr;   // forgets the kernel; null if the library cannot switch
  void (*start_)() = nullptr;  // picks one: OPENBLAS_CORETYPE's, else by the processor's name
  std::vector<std::string> kernels_, ruled_out_;
  std::string fixed_by_;
};

}  // namespace sprat::mp
