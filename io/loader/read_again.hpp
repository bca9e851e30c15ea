// One more try for a sample whose bytes are not what its format says.
#pragma once

#include "io/loader/batch.hpp"
#include "io/loader/file_table.hpp"
#include "io/order/sampling.hpp"

namespace sprat::io {

/// Reads the record's bytes from its file, opened anew, past the page cache where that is possible,
/// into memory of the sample's own. Any thread. Throws Error{unavailable} naming the file.
void read_again(const FileTable& files, MemoryPool& pool, LoadedSample& sample);

}  // namespace sprat::io
