// What multiplies matrices: the table of backends, one file each in gemm/backends/.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/mp.hpp"

namespace sprat::mp {

/// A library with one kernel or several. All but the strings may throw Error{unavailable} where the
/// machine lacks the library; any thread may call.
struct GemmKind {
  std::string_view name;     ///< A backend is called so, or NAME/KERNEL.
  std::string_view summary;  ///< One line for people.
  /// Names of the backends that can be opened here.
  std::vector<std::string> (*backends)();
  /// Their rates, that of the one that the library would choose first.
  std::vector<GemmRate> (*rates)();
  /// The backend in use, else the first of rates().
  std::string (*choose)();
  /// Of one of backends(). Throws Error{unavailable} while another kernel of the library is open
  /// that cannot be used beside it.
  std::shared_ptr<const GemmBackend> (*open)(std::string_view backend);
  /// The library's own words about its build; empty if there are none.
  std::string (*build)();
  /// For people: what of the environment makes it clearly slower, by the last rates(); empty if
  /// nothing does.
  std::string (*warning)();
};

/// The table; the first row is the default.
std::span<const GemmKind* const> all_gemm_kinds() noexcept;
/// The row that a backend of this name belongs to, or that is called so. Null: there is none.
const GemmKind* gemm_kind_of(std::string_view name) noexcept;

/// GFLOP/s of one thread, in some milliseconds.
double measure_gemm(const std::function<void(const MatrixProduct&)>& multiply);

}  // namespace sprat::mp
