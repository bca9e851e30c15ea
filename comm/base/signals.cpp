#include "comm/base/signals.hpp"

#include <dlfcn.h>

#include <csignal>
#include <cstring>
#include <initializer_list>

namespace sprat::comm {
namespace {

bool is_of_infinipath(const struct sigaction& action) {
  if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
    return false;
  }
  // sa_handler and sa_sigaction share their place, so this is the address of either kind.
  Dl_info where{};
  return dladdr(reinterpret_cast<void*>(action.sa_handler), &where) != 0 &&
         where.dli_fname != nullptr && std::strstr(where.dli_fname, "libinfinipath") != nullptr;
}

}  // namespace

void take_back_signals() noexcept {
  for (const int signal : {SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV, SIGTERM}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && is_of_infinipath(action)) {
      // What was set before libinfinipath was loaded cannot be learnt. With a program that links
      // it, that was the system's default.
      struct sigaction system {};
      system.sa_handler = SIG_DFL;
      sigaction(signal, &system, nullptr);
    }
  }
}

}  // namespace sprat::comm
