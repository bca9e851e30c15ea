// A kernel that watches no more for epoll, as where fs.epoll.max_user_watches is reached.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace sprat::comm {

/// From here on the kernel does not let the calling thread watch descriptors of these numbers.
/// False if it does not serve that.
inline bool watch_none_of(std::uint32_t first, std::uint32_t last) {
  // Arguments' lower halves: both machines that we run on are little-endian.
  std::array filter = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_ctl, 0, 6),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, EPOLL_CTL_ADD, 0, 4),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, 2),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{filter.size(), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// The same of whatever is new.
inline bool watch_nothing_new() {
  return watch_none_of(0, std::numeric_limits<std::uint32_t>::max());
}

}  // namespace sprat::comm
