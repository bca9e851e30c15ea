// One rank as a process, or several as threads.
#include "cli/job.hpp"

#include <algorithm>
#include <exception>
#include <mutex>

namespace sprat::cli {

Config with_trace(Config config, const std::string& path) {
  if (!path.empty()) {
    config.trace = path;
  }
  return config;
}

int run_in_job(const Config& config, int virtual_ranks,
               const std::function<int(Communicator&)>& body) {
  // Ranks end with one status, so all of them come here.
  const auto run = [&body](Communicator& world) {
    const int code = body(world);
    world.write_trace();
    return code;
  };
  if (virtual_ranks == 0) {
    auto world = Communicator::join(config);
    try {
      return run(world);
    } catch (const std::exception& error) {
      world.abort(error.what());  // or the others hear that it left in good order
      throw;
    }
  }
  std::mutex mutex;  // guards worst
  int worst = 0;
  run_virtual_ranks(virtual_ranks, config, [&](Communicator& world) {
    const int code = run(world);
    const std::lock_guard lock(mutex);
    worst = std::max(worst, code);
  });
  return worst;
}

}  // namespace sprat::cli
