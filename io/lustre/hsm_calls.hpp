// Asks Lustre about files in its archive, and for them, through a probe.
#pragma once

#include <optional>
#include <span>

#include "io/lustre/fs_probe.hpp"
#include "io/lustre/hsm.hpp"

namespace sprat::io {

/// An open file's HSM state; empty where the file system does not tell.
std::optional<HsmState> hsm_state_of(const FsProbe& probe, int descriptor);
/// An open file's FID; empty where the file system has none.
std::optional<LustreFid> fid_of(const FsProbe& probe, int descriptor);
/// Asks for 1 to 52 files to be restored. `root`: the mount's root, open. 0, or an errno, for
/// RestoreAhead::refused().
int request_restore(const FsProbe& probe, int root, std::span<const LustreFid> files);

}  // namespace sprat::io
