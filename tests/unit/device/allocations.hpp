// Counts what a thread allocates by operator new, the library's as well: tests link it statically.
#pragma once

namespace sprat::device {

/// How often the calling thread has allocated so far.
long allocations_here() noexcept;

}  // namespace sprat::device
