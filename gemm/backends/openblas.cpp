// OpenBLAS, with the kernel that a probe at the first use finds best.
#include "gemm/openblas.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>

#include "comm/base/check.hpp"
#include "gemm/gemm_kind.hpp"

namespace sprat::mp {
namespace {

constexpr std::string_view prefix = "openblas/";

// How much faster another kernel must be than the library's own choice. Kernels of one vector width
// differ by about a tenth, so a smaller bound would let noise decide, and with the kernel the bits
// of the results. A kernel of an older width is slower by more than this.
constexpr double clear_gain = 1.3;
// Other load can only slow a kernel down. So the library's own is measured again before another one
// replaces it.
constexpr int second_chances = 3;

/// The library and what is known of it, once for the process: OpenBLAS holds its kernel in one
/// global variable.
struct Process {
  std::mutex mutex;  // guards everything here
  std::unique_ptr<OpenBlas> library;
  std::weak_ptr<const GemmBackend> open;
  std::vector<GemmRate> rates;
  std::string warning;
};
Process& process() {
  static Process instance;
  return instance;
}

class OpenBlasBackend final : public GemmBackend {
 public:
  explicit OpenBlasBackend(const OpenBlas& library)
      : library_(library), name_(text(prefix, library.kernel())) {}
  const std::string& name() const noexcept override { return name_; }
  int sum_pieces() const noexcept override { return 1; }
  void multiply(const MatrixProduct& product) const override { library_.multiply(product); }

 private:
  const OpenBlas& library_;
  std::string name_;
};

OpenBlas& loaded(Process& process) {
  if (!process.library) {
    process.library = std::make_unique<OpenBlas>();
  }
  return *process.library;
}

double measure(const OpenBlas& library) {
  return measure_gemm([&](const MatrixProduct& product) { library.multiply(product); });
}

GemmRate fastest_of(OpenBlas& library, const std::vector<std::string>& kernels) {
  GemmRate fastest;
  for (const std::string& kernel : kernels) {
    if (library.select(kernel)) {
      const double rate = measure(library);
      fastest = rate > fastest.gflops ? GemmRate{text(prefix, kernel), rate} : fastest;
    }
  }
  return fastest;
}

/// The kernel that the user has fixed stays, but whoever did so long ago is told what it costs.
std::string warning_of(OpenBlas& library, double gflops) {
  const GemmRate other = fastest_of(library, library.ruled_out());
  const std::string own = library.kernels().front();
  for (int chance = 0; chance < second_chances && other.gflops > clear_gain * gflops; ++chance) {
    library.select(own);
    gflops = std::max(gflops, measure(library));
  }
  library.select(own);
  if (other.gflops <= clear_gain * gflops) {
    return {};
  }
  const std::string& fixed = library.fixed_by();
  return fmt::format(
      "{} makes matrix products slow: {}{} reaches {:.0f} GFLOP/s, {} would {:.0f}; type env -u {} "
      "before the command",
      fixed, prefix, own, gflops, other.backend, other.gflops, fixed.substr(0, fixed.find('=')));
}

/// Rates with the chosen one first. They are measured once and before a backend is opened, since
/// measuring switches the kernel that an open one would be using.
const std::vector<GemmRate>& rates(Process& process) {
  if (!process.rates.empty()) {
    return process.rates;
  }
  OpenBlas& library = loaded(process);
  require(process.open.expired(), "the probe of matrix kernels comes before one is opened");
  std::vector<GemmRate> found;
  for (const std::string& kernel : library.kernels()) {
    if (library.select(kernel)) {
      found.push_back({text(prefix, kernel), measure(library)});
    }
  }
  const auto fastest = std::max_element(found.begin(), found.end(), [](auto& left, auto& right) {
    return left.gflops < right.gflops;
  });
  const auto is_beaten = [&] { return fastest->gflops > clear_gain * found.front().gflops; };
  for (int chance = 0; chance < second_chances && is_beaten(); ++chance) {
    library.select(library.kernels().front());
    found.front().gflops = std::max(found.front().gflops, measure(library));
  }
  if (is_beaten()) {
    std::iter_swap(found.begin(), fastest);
  }
  std::sort(found.begin() + 1, found.end(),
            [](const GemmRate& left, const GemmRate& right) { return left.gflops > right.gflops; });
  library.select(std::string_view(found.front().backend).substr(prefix.size()));
  if (!library.ruled_out().empty()) {
    process.warning = warning_of(library, found.front().gflops);
  }
  process.rates = std::move(found);
  return process.rates;
}

std::vector<std::string> openblas_backends() {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  std::vector<std::string> names;
  for (const std::string& kernel : loaded(here).kernels()) {
    names.push_back(text(prefix, kernel));
  }
  return names;
}

std::vector<GemmRate> openblas_rates() {
  const std::lock_guard lock(process().mutex);
  return rates(process());
}

std::string choose_openblas() {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  const auto open = here.open.lock();
  return open ? open->name() : rates(here).front().backend;
}

std::shared_ptr<const GemmBackend> open_openblas(std::string_view name) {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  if (auto open = here.open.lock()) {
    need(open->name() == name, "matrix kernel ", name, " cannot be opened while ", open->name(),
         " is in use by this process");
    return open;
  }
  OpenBlas& library = loaded(here);
  need(library.select(name.substr(prefix.size())), "OpenBLAS does not start its kernel ", name,
       " here; name another one");
  auto backend = std::make_shared<const OpenBlasBackend>(library);
  here.open = backend;
  return backend;
}

std::string openblas_build() {
  const std::lock_guard lock(process().mutex);
  return loaded(process()).build();
}

std::string openblas_warning() {
  const std::lock_guard lock(process().mutex);
  return process().warning;
}

}  // namespace

extern const GemmKind openblas_gemm = {
    .name = "openblas",
    .summary = "OpenBLAS, by the fastest of its kernels",
    .backends = openblas_backends,
    .rates = openblas_rates,
    .choose = choose_openblas,
    .open = open_openblas,
    .build = openblas_build,
    .warning = openblas_warning,
};

}  // namespace sprat::mp
