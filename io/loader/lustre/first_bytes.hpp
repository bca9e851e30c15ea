// Reads of one byte, which bring a released file back where requests for it are refused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/lustre/fs_probe.hpp"

namespace sprat::io {

struct FirstByte {
  std::uint32_t file = 0;
  int error = 0;  ///< errno's, or 0.
};

/// Each read has a thread of its own, which nobody waits for: it sleeps in the kernel until the
/// file is back, and nobody can call it back from there. It keeps what it needs itself. One thread
/// at a time.
class FirstBytes final {
 public:
  /// `notice`: a read has ended; called by its thread, as long as this lives.
  FirstBytes(std::shared_ptr<const FsProbe> probe, std::function<void()> notice);
  ~FirstBytes();
  FirstBytes(const FirstBytes&) = delete;
  FirstBytes& operator=(const FirstBytes&) = delete;

  void read(std::uint32_t file, const std::string& path);
  /// Those that ended since the last call.
  std::vector<FirstByte> take();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // with threads that may outlive this
};

}  // namespace sprat::io
