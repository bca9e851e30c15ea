// A dataset's files by the way they are read: through the page cache, or past it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "io/dataset/extent.hpp"
#include "io/readers/cache_bypass.hpp"
#include "io/readers/open_files.hpp"

namespace sprat::io {

struct FilesByWayOptions {
  OpenFiles::Known known;
  std::function<std::uint64_t(std::uint32_t file)> bytes;  ///< How long a file is.
  bool direct = false;      ///< All reads are direct: there is one way.
  bool may_bypass = false;  ///< Not direct, but long reads may go past the page cache.
  std::chrono::nanoseconds look_again = std::chrono::seconds(1);  ///< See OpenFilesOptions.
};

/// One thread at a time.
class FilesByWay final {
 public:
  explicit FilesByWay(const FilesByWayOptions& options);

  struct Chosen {
    OpenFiles::Opened opened = {};
    std::optional<CacheBypass::Way> way = {};  ///< Of a long read that the page cache has not.
  };
  /// The file that a read of `extent` goes to, which usual() has opened. Throws as OpenFiles does.
  Chosen choose(const Extent& extent, OpenFiles::Opened opened);
  /// Both ways open it by its path again.
  void drop(std::uint32_t file);

  /// Those that all but reads past the page cache go to.
  OpenFiles& usual() noexcept { return usual_; }
  CacheBypass& bypass() noexcept { return bypass_; }

 private:
  bool has_choice(const Extent& extent, const OpenFile& file) const;

  std::function<std::uint64_t(std::uint32_t file)> bytes_;
  bool may_bypass_;
  OpenFiles usual_, direct_;
  CacheBypass bypass_;
};

}  // namespace sprat::io
