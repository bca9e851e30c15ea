// What nlohmann's JSON lets pass without a word and readers of foreign files must not: a key that
// is given twice, and a number that does not fit; and what it says, in plain words.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sprat {

/// What is wrong, in one line and without the parser's name for it:
/// "[json.exception.parse_error.101] parse error at line ...".
inline std::string reason_of(const nlohmann::json::exception& error) {
  std::string message = error.what();
  message.erase(0, message.starts_with('[') ? message.find("] ") + 2 : 0);
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

/// Watches one parse, as nlohmann's callback. Parsers take the last of a key's values; which was
/// meant?
class JsonKeys {
 public:
  /// The key, if this event brings one that its object has already. Wants every event in turn.
  std::optional<std::string> repeated(nlohmann::json::parse_event_t event,
                                      const nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == nlohmann::json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == nlohmann::json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      return open_.back().insert(key).second ? std::nullopt : std::optional(key);
    }
    return std::nullopt;
  }

 private:
  std::vector<std::set<std::string>> open_;  // keys so far of each object we are in
};

/// A whole number that Integer holds, also as "7.0". nlohmann's get() cuts off what is behind the
/// point, and wraps what is too large. Throws nlohmann's exceptions, as get() does.
template <std::integral Integer>
Integer whole_number(const nlohmann::json& value) {
  std::optional<Integer> fits;
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    fits = std::in_range<Integer>(number) ? std::optional(static_cast<Integer>(number)) : fits;
  } else if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    fits = std::in_range<Integer>(number) ? std::optional(static_cast<Integer>(number)) : fits;
  } else if (value.is_number_float()) {
    constexpr double exact = 9'007'199'254'740'992;  // 2^53: beyond, doubles leave numbers out
    const double number = value.get<double>();
    if (std::abs(number) <= exact && number == std::trunc(number)) {
      const auto whole = static_cast<std::int64_t>(number);
      fits = std::in_range<Integer>(whole) ? std::optional(static_cast<Integer>(whole)) : fits;
    }
  } else {
    throw nlohmann::json::type_error::create(
        302, std::string("type must be number, but is ") + value.type_name(), &value);
  }
  if (!fits) {
    throw nlohmann::json::out_of_range::create(
        406, value.dump() + " is no whole number that is expected there", &value);
  }
  return *fits;
}

template <std::integral Integer>
std::vector<Integer> whole_numbers(const nlohmann::json& list) {
  if (!list.is_array()) {
    throw nlohmann::json::type_error::create(
        302, std::string("type must be array, but is ") + list.type_name(), &list);
  }
  std::vector<Integer> numbers;
  numbers.reserve(list.size());
  for (const nlohmann::json& one : list) {
    numbers.push_back(whole_number<Integer>(one));
  }
  return numbers;
}

}  // namespace sprat
