// Which host a rank runs on: the kernel's boot id and its namespaces, or the name it was given.
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "comm/base/check.hpp"
#include "comm/host/topology.hpp"

namespace sprat::comm {

namespace {

std::string boot_id() {
  constexpr const char* path = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(path);
  std::string id;
  const bool known = static_cast<bool>(file >> id);
  need(known, "cannot read ", path, ", which tells hosts apart: ", std::strerror(errno));
  return id;
}

/// Equal for two processes of one kernel exactly if they are in the same namespace of that kind.
std::string namespace_id(const char* kind) {
  const std::string path = text("/proc/self/ns/", kind);
  struct stat status {};
  const bool known = stat(path.c_str(), &status) == 0;
  need(known, "cannot read ", path, ", which tells hosts apart: ", std::strerror(errno));
  return text("/", kind, "=", status.st_ino);
}

std::string host_name() {
  std::array<char, 256> name{};
  const bool known = gethostname(name.data(), name.size() - 1) == 0;
  need(known, "cannot read the host's name: ", std::strerror(errno));
  return name.data();
}

}  // namespace

std::string named_host(std::string_view hosts, int rank) {
  if (hosts.find(',') == std::string_view::npos) {
    return std::string(hosts);
  }
  std::string_view rest = hosts;
  for (int skipped = 0; skipped < rank; ++skipped) {
    const std::size_t comma = rest.find(',');
    require(comma != std::string_view::npos, "SPRAT_HOST=\"", hosts, "\" names ", skipped + 1,
            " hosts; rank ", rank, " needs one too");
    rest.remove_prefix(comma + 1);
  }
  const std::string_view name = rest.substr(0, rest.find(','));
  require(!name.empty(), "SPRAT_HOST=\"", hosts, "\" names no host for rank ", rank);
  return std::string(name);
}

// The machine too: SPRAT_HOST may give one name to hosts whose process ids mean different things.
std::uint64_t HostIdentity::number() const {
  const std::string both = machine + '\n' + label;
  return XXH3_64bits(both.data(), both.size()) | 1;
}

HostIdentity host_identity(const Config& config, int rank) {
  const std::string boot = boot_id();
  HostIdentity host;
  // Peers find each other's memory by process id (/proc/PID/fd), so ids must mean the same to both.
  host.machine = boot + namespace_id("pid");
  host.name = named_host(config.host, rank);
  if (host.name.empty()) {
    host.name = host_name();
    host.label = host.machine;
    for (const char* kind : {"mnt", "ipc", "user"}) {
      host.label += namespace_id(kind);
    }
  } else {
    // SPRAT_HOST splits and merges hosts within one kernel. The boot id stays in the label, since
    // ranks under different kernels can never share memory, whatever they are named.
    host.label = boot + "/" + host.name;
  }
  return host;
}

}  // namespace sprat::comm
