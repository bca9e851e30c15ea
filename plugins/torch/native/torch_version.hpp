// What differs between the PyTorch versions that this builds against: 2.11 to 2.15.
#pragma once

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
/// Behind a method that is c10d's own, and virtual, from PyTorch 2.14 on.
#define SPRAT_SINCE_TORCH_2_14 override
#else
#define SPRAT_SINCE_TORCH_2_14
#endif

/// Whether c10d has hooks for operations that have ended, by number: since PyTorch 2.15.
#define SPRAT_TORCH_HAS_COMPLETION_HOOKS (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15)
