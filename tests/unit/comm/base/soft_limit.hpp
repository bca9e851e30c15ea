// The soft limit of open files, lowered for a test.
#pragma once

#include <sys/resource.h>

namespace sprat::comm {

/// Puts the soft limit back; a hard one cannot be.
class SoftLimit {
 public:
  explicit SoftLimit(rlim_t files) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = files;
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~SoftLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  rlim_t hard() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

inline rlim_t soft_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace sprat::comm
