// One rank as a process, or several as threads.
#include "cli/job.hpp"

#include <algorithm>
#include <mutex>

namespace sprat::cli {

int run_in_job(const Config& config, int virtual_ranks,
               const std::function<int(Communicator&)>& body) {
  if (virtual_ranks == 0) {
    auto world = Communicator::join(config);
    return body(world);
  }
  std::mutex mutex;  // guards worst
  int worst = 0;
  run_virtual_ranks(virtual_ranks, config, [&](Communicator& world) {
    const int code = body(world);
    const std::lock_guard lock(mutex);
    worst = std::max(worst, code);
  });
  return worst;
}

}  // namespace sprat::cli
