#include "comm/base/descriptors.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "comm/base/log.hpp"

namespace sprat::comm {
namespace {

/// What others in this process may still open: its program's files, libraries, other jobs.
constexpr std::size_t spare = 64;

std::size_t open_now() {
  std::error_code unreadable;
  std::size_t count = 0;
  for (std::filesystem::directory_iterator one("/proc/self/fd", unreadable), end;
       !unreadable && one != end; one.increment(unreadable)) {
    ++count;
  }
  return count;
}

std::size_t limit_number(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::numeric_limits<std::size_t>::max()
                                : static_cast<std::size_t>(limit);
}

}  // namespace

std::size_t most_descriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit_number(limit.rlim_max)
                                               : std::numeric_limits<std::size_t>::max();
}

bool make_room_for_descriptors(std::size_t more) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return true;  // whoever runs out says so
  }
  const std::size_t open = open_now();
  const std::size_t wanted = open + more + spare;
  if (wanted <= limit_number(limit.rlim_cur)) {
    return true;
  }
  // No further than is needed: a program that uses select() is safe below 1,024 only.
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = static_cast<rlim_t>(std::min(wanted, limit_number(limit.rlim_max)));
  if (limit.rlim_cur > before && setrlimit(RLIMIT_NOFILE, &limit) == 0) {
    log().info("the limit of open files is raised from {} to {}", before, limit.rlim_cur);
  }
  return open + more <= limit_number(limit.rlim_max);
}

}  // namespace sprat::comm
