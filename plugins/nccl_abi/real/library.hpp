// NCCL's own library, where a program has named one.
#pragma once

#include <string>

#include "plugins/nccl_abi/abi.h"

namespace sprat::nccl::real {

/// Its functions, with the declarations that ours have.
struct Library {
#define SPRAT_REAL_NCCL(name) decltype(&::pnccl##name) name = nullptr;
#include "plugins/nccl_abi/real/calls.def"
  int version = 0;  ///< As ncclGetVersion() has it.
};

struct FoundLibrary {
  const Library* library = nullptr;
  std::string missing;  ///< Why there is none.
};
/// Loaded at the first call for a path, and never closed. Any thread.
const FoundLibrary& library_at(const std::string& path);

}  // namespace sprat::nccl::real
