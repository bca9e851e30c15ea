// Choosing what multiplies matrices: the backends there are, and a probe of their rates.
#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>

#include "comm/base/check.hpp"
#include "gemm/gemm_openblas.hpp"
#include "sprat/mp.hpp"

namespace sprat {
namespace {

constexpr std::string_view prefix = "openblas/";

std::string listed(const std::vector<std::string>& kernels) {
  std::string list;
  for (const auto& kernel : kernels) {
    list += text(list.empty() ? "" : ", ", prefix, kernel);
  }
  return list;
}
// A product about as large as a layer's, done often enough that the best time is hardly disturbed,
// in some milliseconds a kernel.
constexpr int probe_size = 192;
constexpr int probe_rounds = 8;
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
  std::unique_ptr<mp::OpenBlas> library;
  std::weak_ptr<const GemmBackend> open;
  std::vector<GemmRate> rates;
};
Process& process() {
  static Process instance;
  return instance;
}

class OpenBlasBackend final : public GemmBackend {
 public:
  explicit OpenBlasBackend(const mp::OpenBlas& library)
      : library_(library), name_(text(prefix, library.kernel())) {}
  const std::string& name() const noexcept override { return name_; }
  void multiply(const MatrixProduct& product) const override { library_.multiply(product); }

 private:
  const mp::OpenBlas& library_;
  std::string name_;
};

mp::OpenBlas& loaded(Process& process) {
  if (!process.library) {
    process.library = std::make_unique<mp::OpenBlas>();
  }
  return *process.library;
}

double measure(const mp::OpenBlas& library) {
  using Clock = std::chrono::steady_clock;
  std::vector<float> a(probe_size * probe_size, 1.0f), b(a), out(a);
  auto best = Clock::duration::max();
  for (int round = 0; round < probe_rounds; ++round) {
    const auto begin = Clock::now();
    library.multiply({.rows = probe_size,
                      .columns = probe_size,
                      .inner = probe_size,
                      .a = {a.data(), probe_size},
                      .b = {b.data(), probe_size},
                      .out = {out.data(), probe_size}});
    best = std::min(best, Clock::now() - begin);
  }
  const double operations = 2.0 * probe_size * probe_size * probe_size;
  return operations / std::chrono::duration<double>(best).count() * 1e-9;
}

/// Rates with the chosen one first. They are measured once and before a backend is opened, since
/// measuring switches the kernel that an open one would be using.
const std::vector<GemmRate>& rates(Process& process) {
  if (!process.rates.empty()) {
    return process.rates;
  }
  mp::OpenBlas& library = loaded(process);
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
  process.rates = std::move(found);
  return process.rates;
}

}  // namespace

std::vector<GemmRate> probe_gemm_backends() {
  const std::lock_guard lock(process().mutex);
  return rates(process());
}

std::string choose_gemm_backend() {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  const auto open = here.open.lock();
  return open ? open->name() : rates(here).front().backend;
}

std::shared_ptr<const GemmBackend> open_gemm_backend(std::string_view name) {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  if (auto open = here.open.lock()) {
    need(open->name() == name, "matrix kernel ", name, " cannot be opened while ", open->name(),
         " is in use by this process");
    return open;
  }
  mp::OpenBlas& library = loaded(here);
  need(name.substr(0, prefix.size()) == prefix && library.select(name.substr(prefix.size())),
       "matrix kernel ", name, " is not available here; there is ", listed(library.kernels()),
       " (OPENBLAS_CORETYPE, if set, allows only itself)");
  auto backend = std::make_shared<const OpenBlasBackend>(library);
  here.open = backend;
  return backend;
}

std::string describe_gemm_backends() {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  std::string lines;
  for (const GemmRate& rate : rates(here)) {
    lines += fmt::format("{:24} {:7.1f} GFLOP/s a thread{}\n", rate.backend, rate.gflops,
                         lines.empty() ? "  (chosen)" : "");
  }
  return lines + "OpenBLAS build: " + loaded(here).build() + "\n";
}

}  // namespace sprat
