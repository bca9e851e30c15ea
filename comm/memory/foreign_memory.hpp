// Private memory of other processes of this host, read by the kernel (cross-memory attach).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace sprat::comm {

/// Lets processes of this user read this one's memory where Yama asks for leave (ptrace scope 1).
void allow_reading() noexcept;

/// Copies `bytes` at `address` of process `pid`. False if it is gone, has no such memory, or may
/// not be read. Any thread.
bool read_foreign(pid_t pid, std::uint64_t address, std::byte* to, std::size_t bytes) noexcept;

}  // namespace sprat::comm
