// The one place where the library reads the environment.
#pragma once

#include <string>
#include <vector>

namespace sprat {

/// An environment variable, or null. Nothing else in the library reads the environment, so that
/// what can be set from outside is found in one place.
const char* environment(const char* variable) noexcept;

/// Names of those that begin with SPRAT_, sorted, each once.
std::vector<std::string> own_variables();

/// A variable that begins with SPRAT_ and that nothing reads.
struct UnknownVariable {
  std::string name;
  std::string nearest;  ///< The setting that is spelt most like it.
};
std::vector<UnknownVariable> unknown_variables();

}  // namespace sprat
