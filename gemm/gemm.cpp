// The backends of matrix products: their table, and opening one by its name.
#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "comm/base/check.hpp"
#include "gemm/gemm_kind.hpp"
#include "sprat/mp.hpp"

// One entry a file; a test compares the list with the folder. The first one is the default.
#define SPRAT_GEMM_KINDS(entry) entry(openblas) entry(reference)

namespace sprat {
namespace mp {

#define SPRAT_DECLARE(file) extern const GemmKind file##_gemm;
SPRAT_GEMM_KINDS(SPRAT_DECLARE)
#undef SPRAT_DECLARE

std::span<const GemmKind* const> all_gemm_kinds() noexcept {
#define SPRAT_ADDRESS(file) &file##_gemm,
  static constexpr std::array kinds = {SPRAT_GEMM_KINDS(SPRAT_ADDRESS)};
#undef SPRAT_ADDRESS
  return kinds;
}

const GemmKind* gemm_kind_of(std::string_view name) noexcept {
  const auto kinds = all_gemm_kinds();
  const auto found = std::ranges::find(kinds, name.substr(0, name.find('/')), &GemmKind::name);
  return found == kinds.end() ? nullptr : *found;
}

double measure_gemm(const std::function<void(const MatrixProduct&)>& multiply) {
  // A product about as large as a layer's, done often enough that the best time is hardly
  // disturbed, in some milliseconds a kernel.
  constexpr int size = 192, rounds = 8;
  using Clock = std::chrono::steady_clock;
  std::vector<float> a(size * size, 1.0f), b(a), out(a);
  auto best = Clock::duration::max();
  for (int round = 0; round < rounds; ++round) {
    const auto begin = Clock::now();
    multiply({.rows = size,
              .columns = size,
              .inner = size,
              .a = {a.data(), size},
              .b = {b.data(), size},
              .out = {out.data(), size}});
    best = std::min(best, Clock::now() - begin);
  }
  const double operations = 2.0 * size * size * size;
  return operations / std::chrono::duration<double>(best).count() * 1e-9;
}

}  // namespace mp

namespace {

/// Every backend that can be opened here, for messages.
std::string listed() {
  std::string list;
  for (const mp::GemmKind* kind : mp::all_gemm_kinds()) {
    for (const std::string& backend : kind->backends()) {
      list += text(list.empty() ? "" : ", ", backend);
    }
  }
  return list;
}

}  // namespace

std::vector<std::string> gemm_backend_kinds() {
  std::vector<std::string> names;
  for (const mp::GemmKind* kind : mp::all_gemm_kinds()) {
    names.emplace_back(kind->name);
  }
  return names;
}

std::vector<GemmRate> probe_gemm_backends() {
  std::vector<GemmRate> all;
  for (const mp::GemmKind* kind : mp::all_gemm_kinds()) {
    const std::vector<GemmRate> rates = kind->rates();
    all.insert(all.end(), rates.begin(), rates.end());
  }
  return all;
}

std::vector<std::string> gemm_warnings() {
  std::vector<std::string> all;
  for (const mp::GemmKind* kind : mp::all_gemm_kinds()) {
    if (std::string warning = kind->warning(); !warning.empty()) {
      all.push_back(std::move(warning));
    }
  }
  return all;
}

std::string choose_gemm_backend() { return mp::all_gemm_kinds().front()->choose(); }

std::shared_ptr<const GemmBackend> open_gemm_backend(std::string_view name) {
  const mp::GemmKind* kind = mp::gemm_kind_of(name);
  const bool known = kind != nullptr && std::ranges::count(kind->backends(), name) > 0;
  need(known, "matrix kernel ", name, " is not available here; there is ", listed(),
       " (OPENBLAS_CORETYPE, if set, allows only itself)");
  return kind->open(name);
}

std::string describe_gemm_backends() {
  std::string lines;
  for (const mp::GemmKind* kind : mp::all_gemm_kinds()) {
    for (const GemmRate& rate : kind->rates()) {
      lines += fmt::format("{:24} {:7.1f} GFLOP/s a thread{}\n", rate.backend, rate.gflops,
                           lines.empty() ? "  (chosen)" : "");
    }
  }
  for (const mp::GemmKind* kind : mp::all_gemm_kinds()) {
    const std::string build = kind->build();
    lines += text(kind->name, ": ", kind->summary, build.empty() ? "" : "; ", build, "\n");
  }
  return lines;
}

}  // namespace sprat
