// Loading OpenBLAS and switching its kernels.
//
// A build of OpenBLAS for many processors picks its kernel once, by the processor's model, and
// takes an older one for a model that it does not know. OPENBLAS_CORETYPE overrides the pick, but
// is read only when the library starts its dispatch. So the library is loaded here rather than
// linked: its start and stop routines are called again with the variable set, in a copy that nobody
// shares.
#include "gemm/openblas.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "comm/base/check.hpp"
#include "comm/base/config.hpp"

namespace sprat::mp {
namespace {

constexpr const char* kernel_variable = "OPENBLAS_CORETYPE";
constexpr const char* threads_variable = "OPENBLAS_NUM_THREADS";
// The variant with threads, held to one thread: only that variant may be called from several
// threads at once.
constexpr std::array library_names = {"libopenblas.so.0", "libopenblas.so"};

bool is_set(const char* name) { return environment(name) != nullptr; }

/// Sets a variable for OpenBLAS to read; the user's comes back when this goes.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (is_set(name)) {
      users_ = environment(name);
    }
    setenv(name, value, 1);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { users_ ? setenv(name_, users_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> users_;
};

/// RTLD_DEEPBIND makes the library use its own functions before those of a BLAS that the program
/// has loaded.
int load_flags() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return RTLD_NOW | RTLD_LOCAL;  // the sanitizers do not work with deep binding
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return RTLD_NOW | RTLD_LOCAL;
#else
  return RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif
#else
  return RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif
}

/// If the program uses OpenBLAS too (NumPy does, say), dlopen() would give us its library, whose
/// kernel is not ours to change. So the file is copied into memory and loaded from there, which
/// makes it another library.
void* load_copy(void* shared) {
  Dl_info info{};
  void* symbol = dlsym(shared, "cblas_sgemm");
  if (symbol == nullptr || dladdr(symbol, &info) == 0) {
    return nullptr;
  }
  const int from = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
  const int to = memfd_create("sprat-openblas", MFD_CLOEXEC);
  struct stat status {};
  void* library = nullptr;
  if (from >= 0 && to >= 0 && fstat(from, &status) == 0) {
    off_t done = 0;
    while (done < status.st_size &&
           sendfile(to, from, &done, static_cast<std::size_t>(status.st_size - done)) > 0) {
    }
    if (done == status.st_size) {
      library = dlopen(text("/proc/self/fd/", to).c_str(), load_flags());
    }
  }
  close(from);
  close(to);
  return library;
}

void* load() {
  // Read as the library is loaded: it would otherwise start threads that nobody uses.
  const ScopedVariable one_thread(threads_variable, "1");
  std::string reason;
  for (const char* name : library_names) {
    void* shared = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    void* library = shared != nullptr ? load_copy(shared) : dlopen(name, load_flags());
    if (shared != nullptr) {
      dlclose(shared);
    }
    if (library != nullptr) {
      return library;
    }
    const char* message = dlerror();
    reason += text(reason.empty() ? "" : "; ", message != nullptr ? message : "cannot be copied");
  }
  throw Error(ErrorCode::unavailable,
              text("matrix products need OpenBLAS, which cannot be loaded (", reason,
                   "): install libopenblas0-pthread"));
}

template <class Function>
bool bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// Kernels worth probing on this processor: those whose instructions it has.
std::vector<const char*> candidates() {
  std::vector<const char*> names;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    names.push_back("SkylakeX");
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    names.push_back("Haswell");
    names.push_back("Zen");
  }
#endif
  return names;
}

}  // namespace

OpenBlas::OpenBlas() : library_(load()) {
  void (*set_threads)(int) = nullptr;
  need(bind(library_, "cblas_sgemm", sgemm_) && bind(library_, "openblas_get_config", config_) &&
           bind(library_, "openblas_get_corename", corename_) &&
           bind(library_, "openblas_set_num_threads", set_threads),
       "the installed libopenblas.so.0 lacks CBLAS: install libopenblas0-pthread");
  set_threads(1);
  if (!bind(library_, "gotoblas_dynamic_quit", stop_) ||
      !bind(library_, "gotoblas_dynamic_init", start_)) {
    stop_ = start_ = nullptr;
  }
  find_kernels();
}

void OpenBlas::find_kernels() {
  const std::string own = kernel();
  kernels_ = {own};
  if (start_ == nullptr) {
    return;
  }
  // A kernel that the user has fixed is not changed.
  if (is_set(kernel_variable)) {
    fixed_by_ = text(kernel_variable, "=", environment(kernel_variable));
  }
  for (const char* candidate : candidates()) {
    // A build may lack a kernel and start another one instead, so the name is asked for afterwards.
    if (candidate != own && restart(candidate) && kernel() == candidate) {
      (fixed_by_.empty() ? kernels_ : ruled_out_).emplace_back(candidate);
    }
  }
  select(own);
}

bool OpenBlas::restart(const char* kernel) {
  const ScopedVariable variable(kernel_variable, kernel);
  stop_();
  start_();
  return true;
}

bool OpenBlas::select(std::string_view kernel) {
  for (const auto* list : {&kernels_, &ruled_out_}) {
    for (const std::string& known : *list) {
      if (known == kernel) {
        if (this->kernel() != known) {
          restart(known.c_str());
        }
        return this->kernel() == known;
      }
    }
  }
  return false;
}

std::string OpenBlas::kernel() const { return corename_(); }

std::string OpenBlas::build() const { return config_(); }

void OpenBlas::multiply(const MatrixProduct& p) const {
  sgemm_(CblasRowMajor, p.a.transposed ? CblasTrans : CblasNoTrans,
         p.b.transposed ? CblasTrans : CblasNoTrans, p.rows, p.columns, p.inner, p.alpha, p.a.data,
         p.a.stride, p.b.data, p.b.stride, p.beta, p.out.data, p.out.stride);
}

}  // namespace sprat::mp
