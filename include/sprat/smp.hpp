// The configuration of SageMaker's model parallelism library (SMP), version 1 and version 2: its
// keys, their defaults, and what they ask of each other.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sprat/export.hpp"
#include "sprat/layout.hpp"

namespace sprat {

enum class SmpVersion : std::uint8_t { v1, v2 };
/// "v1" or "v2".
SPRAT_API std::string_view name(SmpVersion version) noexcept;

enum class SmpKind : std::uint8_t { whole, number, flag, word };
/// By kind: std::int64_t, double, bool, std::string; nothing for a key that is left out and has no
/// default.
using SmpValue = std::variant<std::monostate, bool, std::int64_t, double, std::string>;
/// As JSON has it.
SPRAT_API std::string describe(const SmpValue& value);

/// One key of one version of SMP.
struct SmpKey {
  SmpVersion version{};
  std::string_view name, source;
  SmpKind kind{};
  SmpValue standard;         ///< The default; nothing where there is none, or where it follows.
  std::string_view follows;  ///< What the default follows from, in words; else empty.
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  std::string_view choices;  ///< All words there are, with a space between; empty: any.
  /// Whether sprat.torch carries out every value. If not it takes the default alone.
  bool served = false;
  std::string_view how;  ///< What the key does there, or what works instead.
};
/// Version 2 first.
SPRAT_API const std::vector<SmpKey>& smp_keys();
/// Throws Error{invalid_argument} if the version has no such key.
SPRAT_API const SmpKey& smp_key(SmpVersion version, std::string_view name);
/// The values that SMP takes, in words: "integer, at least 1".
SPRAT_API std::string legal_values(const SmpKey& key);

/// Every key of one version with its value, given or default.
struct SmpParameters {
  SmpVersion version{};
  std::map<std::string, SmpValue, std::less<>> values;
  std::vector<std::string> given;  ///< Those that the configuration names.
};

/// From JSON text: {"key": value, ...}, alone or nested as for SageMaker's estimator, under
/// smdistributed, modelparallel or parameters. The version is that of the keys; 2 if both have all.
/// Throws Error{invalid_argument} with key, value and remedy: an unknown key, a value of another
/// kind or out of range, keys of both versions, keys that contradict each other.
SPRAT_API SmpParameters parse_smp_parameters(std::string_view json);
/// Throws Error{invalid_argument} naming the first value that sprat.torch does not carry out yet,
/// and what works instead.
SPRAT_API void require_served(const SmpParameters& parameters);
/// The layout that the parameters ask for.
SPRAT_API ParallelDegrees parallel_degrees(const SmpParameters& parameters, int world);

}  // namespace sprat
