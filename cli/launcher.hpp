// Who launched this rank, and whether it is still there.
#pragma once

#include <sys/types.h>

#include "comm/base/owned_descriptor.hpp"

namespace sprat::cli {

/// The process that launched this rank: the nearest above it that is not of the rank itself, as
/// scripts around the program are. That is mpirun, orted, slurmstepd or torchrun's agent. 0 if
/// nobody launched it as a rank, or if that process is the first of its machine or container.
pid_t launcher();

/// A descriptor that becomes readable when launcher() ends; closes it.
class LauncherWatch {
 public:
  LauncherWatch();

  /// -1 without a launcher, or where the kernel cannot tell (before Linux 5.3).
  int descriptor() const { return descriptor_.number(); }

 private:
  comm::OwnedDescriptor descriptor_;
};

}  // namespace sprat::cli
