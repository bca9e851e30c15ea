// The one door to the environment.
#pragma once

namespace sprat {

/// An environment variable, or null. Nothing else in the library reads the environment, so that
/// what can be set from outside is found in one place.
const char* environment(const char* variable) noexcept;

}  // namespace sprat
