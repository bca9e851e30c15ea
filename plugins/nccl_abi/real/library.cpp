// Loads libnccl.so.2 beside this library, which has the same names.
#include "plugins/nccl_abi/real/library.hpp"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "plugins/nccl_abi/errors.hpp"

namespace sprat::nccl::real {
namespace {

// NCCL calls its own public functions by their names, which a preloaded library would answer: it
// shall look at itself first. Sanitizers refuse to load anything so, since they stand in for
// functions of the whole process; what they watch finds its own by other means.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int itself_first = 0;
#else
constexpr int itself_first = RTLD_DEEPBIND;
#endif

void fail(const std::string& message) { throw Error(ErrorCode::unavailable, message); }

template <class Function>
void find(void* loaded, const std::string& path, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(loaded, name));
  if (function == nullptr) {
    fail(path + " has no " + name + ": it is older than NCCL 2.28, or not NCCL");
  }
}

Library load(const std::string& path) {
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | itself_first);
  if (loaded == nullptr) {
    fail(std::string("it cannot be loaded: ") + dlerror());
  }
  Library library;
#define SPRAT_REAL_NCCL(name) find(loaded, path, library.name, "pnccl" #name);
#include "plugins/nccl_abi/real/calls.def"
  if (library.AllReduce == &pncclAllReduce) {
    fail(path + " is this library itself; name NCCL's own");
  }
  if (library.GetVersion(&library.version) != ncclSuccess || library.version <= 0) {
    fail(path + " does not tell its version");
  }
  return library;
}

}  // namespace

const FoundLibrary& library_at(const std::string& path) {
  // Neither is ever destroyed: communicators of the library may live until the process ends.
  static std::mutex& mutex = *new std::mutex;
  static auto& found = *new std::map<std::string, FoundLibrary>;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = found.try_emplace(path);
  if (is_new) {
    try {
      place->second.library = new Library(load(path));
    } catch (const Error& error) {
      place->second.missing = error.what();
    }
  }
  return place->second;
}

}  // namespace sprat::nccl::real
