// What `sprat doctor` looks at. Each check tries the thing itself where it can.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/lustre/fs_probe.hpp"
#include "sprat/config.hpp"

namespace sprat::cli {

struct Finding {
  enum class Level : std::uint8_t { ok, warn, fail };
  std::string check;
  Level level = Level::ok;
  std::string found;
  std::string remedy = {};  ///< What to type, or to ask for; empty if all is well.
};
const char* name(Finding::Level level);

// memory_checks.cpp: what ranks of one host share.
Finding check_shared_memory();
/// Whether a process maps what another one of this user has: two children try.
Finding check_peer_memory();
Finding check_cross_memory_attach();
Finding check_map_count();
Finding check_huge_pages();

// machine_checks.cpp: limits, clock, cores, launchers.
Finding check_memory_limit();
Finding check_locked_memory(bool needed);
Finding check_open_files();
Finding check_cores();
Finding check_clock();
Finding check_mpirun();

// wire_checks.cpp: what ranks of several hosts need.
Finding check_interfaces(const Config& config);
Finding check_providers(const Config& config);
bool has_efa();

// storage_checks.cpp: Lustre mounts, and how this host's client is set.
std::vector<Finding> check_storage(const io::FsProbe& probe);

/// A file's first line; empty if it cannot be read.
std::string first_line(const std::string& path);
/// "512 MiB".
std::string bytes_text(std::uint64_t bytes);

}  // namespace sprat::cli
