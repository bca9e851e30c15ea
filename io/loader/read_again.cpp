// The page cache may hold what the disk never had, as after a torn read of a network file system;
// so pages are dropped first. It is rare, so it may block its decode thread.
#include "io/loader/read_again.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "comm/base/check.hpp"
#include "io/readers/open_files.hpp"

namespace sprat::io {

void read_again(const FileTable& files, MemoryPool& pool, LoadedSample& sample) {
  const std::uint32_t number = files.number(sample.source, sample.file);
  const Extent extent = files.source(sample.source).record(sample.record);
  OpenFiles anew([&](std::uint32_t file) { return files.known(file); }, {.most = 1});
  const OpenFiles::Opened opened = anew.open(number);
  need(opened.error == 0, "cannot open ", files.path(number),
       " again: ", std::strerror(opened.error));
  const int descriptor = opened.file->descriptor();
  posix_fadvise(descriptor, static_cast<off_t>(extent.offset), static_cast<off_t>(extent.bytes),
                POSIX_FADV_DONTNEED);
  // Memory of its own: others look at the bytes that were read first.
  const PooledMemory memory = pool.take(extent.bytes);
  for (std::uint64_t got = 0; got < extent.bytes;) {
    const ssize_t more = pread(descriptor, memory->data() + got, extent.bytes - got,
                               static_cast<off_t>(extent.offset + got));
    if (more < 0 && errno == EINTR) {
      continue;
    }
    need(more > 0, "cannot read ", files.path(number), " again at ", extent.offset + got, ": ",
         more < 0 ? std::strerror(errno) : "it ends there");
    got += static_cast<std::uint64_t>(more);
  }
  sample.own = memory;
  sample.bytes = *memory;
}

}  // namespace sprat::io
