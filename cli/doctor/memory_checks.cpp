// What ranks of one host share: memory that one makes and the others map.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "cli/doctor/checks.hpp"

namespace sprat::cli {
namespace {

using Level = Finding::Level;

constexpr std::size_t probe_bytes = std::size_t{256} << 20;  // what a rank's control segment takes
constexpr std::uint32_t probe_word = 0x5b7a7a1d;

/// Two processes beside each other, as ranks are: one offers a memfd, the other reaches for it.
/// Returns the errno of `reach`, run in the second with the first's pid and the memfd's number.
int try_between_siblings(int memfd, int (*reach)(pid_t owner, int fd, const std::uint32_t* word)) {
  auto* word = static_cast<std::uint32_t*>(
      mmap(nullptr, sizeof probe_word, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
  if (word == MAP_FAILED) {
    return errno;
  }
  *word = probe_word;
  // Siblings, as ranks are, and not parent and child: Yama lets a process look into its descendants
  // where it refuses a sibling.
  const pid_t owner = fork();
  if (owner == 0) {
    // It pauses for ever, and must not outlive a doctor that is killed.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
      pause();
    }
  }
  const pid_t visitor = owner < 0 ? -1 : fork();
  if (visitor == 0) {
    close(memfd);  // as if it had never had it
    _exit(reach(owner, memfd, word));
  }
  int status = 0;
  const bool ran = visitor > 0 && waitpid(visitor, &status, 0) == visitor && WIFEXITED(status);
  if (owner > 0) {
    kill(owner, SIGKILL);
    waitpid(owner, nullptr, 0);
  }
  munmap(word, sizeof probe_word);
  return ran ? WEXITSTATUS(status) : ECHILD;
}

int map_through_proc(pid_t owner, int fd, const std::uint32_t*) {
  const int opened = open(fmt::format("/proc/{}/fd/{}", owner, fd).c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) {
    return errno;
  }
  void* mapped = mmap(nullptr, sizeof probe_word, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  if (mapped == MAP_FAILED) {
    return errno;
  }
  return *static_cast<std::uint32_t*>(mapped) == probe_word ? 0 : EINVAL;
}

int read_its_memory(pid_t owner, int, const std::uint32_t* word) {
  std::uint32_t value = 0;
  const iovec mine{&value, sizeof value};
  const iovec theirs{const_cast<std::uint32_t*>(word), sizeof value};
  if (process_vm_readv(owner, &mine, 1, &theirs, 1, 0) < 0) {
    return errno;
  }
  return value == probe_word ? 0 : EINVAL;
}

int between_siblings(int (*reach)(pid_t, int, const std::uint32_t*)) {
  const int memfd = memfd_create("sprat-doctor", MFD_CLOEXEC);
  if (memfd < 0) {
    return errno;
  }
  const int error =
      ftruncate(memfd, sizeof probe_word) == 0 ? try_between_siblings(memfd, reach) : errno;
  close(memfd);
  return error;
}

std::string ptrace_scope() {
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  return scope.empty() ? "no Yama" : "kernel.yama.ptrace_scope=" + scope;
}

}  // namespace

Finding check_shared_memory() {
  Finding finding{"shared memory", Level::fail, "", ""};
  const int memfd = memfd_create("sprat-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memfd < 0) {
    finding.found = fmt::format("memfd_create: {}", std::strerror(errno));
    finding.remedy = "allow memfd_create in the container's seccomp profile";
    return finding;
  }
  void* mapped = MAP_FAILED;
  if (ftruncate(memfd, probe_bytes) == 0) {
    mapped = mmap(nullptr, probe_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  }
  const int error = errno;
  close(memfd);
  if (mapped == MAP_FAILED) {
    finding.found =
        fmt::format("cannot map {} of it: {}", bytes_text(probe_bytes), std::strerror(error));
    finding.remedy = "raise the limit on virtual memory: ulimit -v unlimited";
    return finding;
  }
  munmap(mapped, probe_bytes);
  return {"shared memory", Level::ok, "memfd works; the size of /dev/shm does not matter"};
}

Finding check_peer_memory() {
  const int error = between_siblings(map_through_proc);
  if (error == 0) {
    return {"peer memory", Level::ok, "ranks of this user map each other's memory"};
  }
  Finding finding{
      "peer memory", Level::fail,
      fmt::format("a rank cannot open another's /proc/PID/fd: {}; ranks of this host would talk "
                  "as if they were on several, slower",
                  std::strerror(error)),
      "run every rank as the same user in the same user and pid namespace"};
  if (prctl(PR_GET_DUMPABLE) != 1) {
    finding.found += "; this process is not dumpable";
    finding.remedy =
        "start the program without file capabilities or set-user-id, or let it call "
        "prctl(PR_SET_DUMPABLE, 1) before it joins";
  } else if (first_line("/proc/self/stat").empty()) {
    finding.remedy = "mount /proc: mount -t proc proc /proc";
  }
  return finding;
}

Finding check_cross_memory_attach() {
  const int error = between_siblings(read_its_memory);
  return {"attach", Level::ok,
          error == 0 ? fmt::format("process_vm_readv works ({})", ptrace_scope())
                     : fmt::format("process_vm_readv: {} ({}); Sprat does not need it",
                                   std::strerror(error), ptrace_scope())};
}

Finding check_map_count() {
  const std::string most = first_line("/proc/sys/vm/max_map_count");
  constexpr unsigned long enough = 65530;  // the kernel's default
  if (!most.empty() && std::stoul(most) < enough) {
    return {"mappings", Level::warn,
            "vm.max_map_count=" + most + ": each peer's buffers take one each",
            fmt::format("sysctl -w vm.max_map_count={}", enough)};
  }
  return {"mappings", Level::ok, "vm.max_map_count=" + (most.empty() ? "unknown" : most)};
}

Finding check_huge_pages() {
  const std::string modes = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const std::size_t open = modes.find('['), end = modes.find(']');
  return {
      "huge pages", Level::ok,
      open == modes.npos
          ? "the kernel has none for shared memory"
          : "for shared memory: " + modes.substr(open + 1, end - open - 1) +
                " (/sys/kernel/mm/transparent_hugepage/shmem_enabled; \"always\" can be faster)"};
}

}  // namespace sprat::cli
