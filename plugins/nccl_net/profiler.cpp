#include "plugins/nccl_net/profiler.hpp"

#include <unistd.h>

#include <array>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>

#include "comm/base/check.hpp"
#include "comm/base/config.hpp"
#include "plugins/nccl_net/guard.hpp"

namespace sprat::nccl_net::profiler {
namespace {

/// Some 40 MB, and a file of about as much: an hour of a training step a second with 30 calls.
constexpr std::size_t most_events = 200'000;

/// One for all communicators of a process: proxy operations of one may have parents of another, and
/// a viewer shows one file at a time.
struct Shared {
  std::mutex mutex;              ///< Guards all of it.
  std::unique_ptr<Trace> trace;  ///< While there are communicators.
  int communicators = 0;
  int files = 0;
};

/// The interface's stopEvent() takes no context. Never destroyed: programs end without their
/// communicators' ends, and NCCL's network threads go on until the process is gone.
Shared& shared() {
  static Shared& one = *new Shared;
  return one;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

void write(const Trace& trace, const std::string& folder, int number) {
  const std::string path =
      text(folder, "/nccl-", host_name(), "-", ::getpid(), ".", number, ".json");
  std::ofstream file(path);
  file << trace.as_json(::getpid()) << '\n';
  file.close();
  need(!file.fail(), "cannot write the trace ", path, "; SPRAT_NCCL_TRACE names its folder");
  if (trace.dropped() > 0) {
    log_line(LogLevel::warn, log_profile,
             text("the trace ", path, " has the first ", most_events, " events; ", trace.dropped(),
                  " more are not kept"));
  }
}

}  // namespace

Result init(void** context, int* events) {
  return guard("profiler init", [&] {
    *context = nullptr;
    *events = 0;
    const char* const folder = environment("SPRAT_NCCL_TRACE");
    if (folder == nullptr || *folder == '\0') {
      return Result::success;
    }
    Shared& all = shared();
    const std::lock_guard lock(all.mutex);
    if (all.communicators == 0) {
      all.trace = std::make_unique<Trace>(most_events);
    }
    ++all.communicators;
    *context = all.trace.get();
    *events = static_cast<int>(traced_kinds);
    return Result::success;
  });
}

Result start(void* context, void** event, const TracedFacts& facts, void* parent) {
  *event = nullptr;
  if (context != nullptr) {
    auto& trace = *static_cast<Trace*>(context);
    *event = trace.begin(facts, trace.has(parent) ? static_cast<Trace::Event*>(parent) : nullptr);
  }
  return Result::success;
}

Result stop(void* event) {
  if (event != nullptr) {
    Trace::end(*static_cast<Trace::Event*>(event));
  }
  return Result::success;
}

Result finalize(void* context) {
  return guard("profiler finalize", [&] {
    if (context == nullptr) {
      return Result::success;
    }
    Shared& all = shared();
    const std::lock_guard lock(all.mutex);
    if (--all.communicators == 0) {
      const std::unique_ptr<Trace> trace = std::move(all.trace);
      if (const char* const folder = environment("SPRAT_NCCL_TRACE")) {
        write(*trace, folder, all.files++);
      }
    }
    return Result::success;
  });
}

}  // namespace sprat::nccl_net::profiler
