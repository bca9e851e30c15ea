#include "comm/base/thread.hpp"

#include "comm/base/check.hpp"

namespace sprat {

void lacks_thread(std::string_view purpose, const std::error_code& reason) {
  throw Error(ErrorCode::unavailable,
              text("cannot start ", purpose, ": ", reason.message(),
                   "; a limit on threads or memory is too low here (see ulimit -u and ulimit -v, "
                   "or the container's pids limit)"));
}

}  // namespace sprat
