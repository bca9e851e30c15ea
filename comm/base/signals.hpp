// Signals that a library took from the program.
#pragma once

namespace sprat::comm {

/// Debian's libfabric loads libinfinipath, whose handlers, set as it is loaded, print a trace and
/// end the process with status 1, for SIGINT and SIGTERM too. Signals that are still its become the
/// system's again; other handlers stay. Any thread.
void take_back_signals() noexcept;

}  // namespace sprat::comm
