// Not linked: Debian's libfabric brings libraries of other networks along, two of which measure
// their clocks for 0.2 s in each process that loads them, though it may never leave its host.
#include "comm/transports/libfabric/library.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "comm/base/check.hpp"

namespace sprat::comm::libfabric {
namespace {

constexpr const char* file = "libfabric.so.1";

/// What the program has brought itself goes first: two libraries of one provider in a process would
/// share its files and signals.
template <class Function>
Function* find(void* opened, const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  found = found != nullptr ? found : dlsym(opened, name);
  need(found != nullptr, file, " has no ", name, ": install libfabric 1.17 or newer");
  return reinterpret_cast<Function*>(found);
}

Library load() {
  // Else libinfinipath, which comes along, catches the program's signals to print a trace.
  setenv("IPATH_NO_BACKTRACE", "1", 0);
  void* opened = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  const char* reason = opened != nullptr ? "" : dlerror();
  need(opened != nullptr, "messages between hosts need libfabric (Debian: libfabric1): ", reason);
  return {.getinfo = find<decltype(fi_getinfo)>(opened, "fi_getinfo"),
          .freeinfo = find<decltype(fi_freeinfo)>(opened, "fi_freeinfo"),
          .dupinfo = find<decltype(fi_dupinfo)>(opened, "fi_dupinfo"),
          .fabric = find<decltype(fi_fabric)>(opened, "fi_fabric"),
          .strerror = find<decltype(fi_strerror)>(opened, "fi_strerror"),
          .version = find<decltype(fi_version)>(opened, "fi_version")};
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

}  // namespace sprat::comm::libfabric
