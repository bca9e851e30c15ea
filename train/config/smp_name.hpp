// Keys of the section parallel that SMP has, and their values there.
#pragma once

#include <variant>

#include "comm/base/json_section.hpp"
#include "sprat/smp.hpp"

namespace sprat::train {

/// A key of SMP, by its version.
struct SmpName {
  SmpVersion version;
  const char* name;

  /// The value that SMP has for it where it is left unsaid.
  double standard() const {
    const SmpValue value = smp_key(version, name).standard;
    return std::holds_alternative<double>(value)
               ? std::get<double>(value)
               : static_cast<double>(std::get<std::int64_t>(value));
  }
};

/// A whole number within what SMP takes for the key; `value` stays if it is not given. Whether it
/// is.
bool read_whole(JsonSection& parallel, SmpName key, int& value);

}  // namespace sprat::train
