// Bounds on what is repeated of a file.
#include "planning/foreign_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/base/check.hpp"

namespace sprat::planning {

std::string without_controls(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return out;
}

std::string printable(std::string_view text) {
  constexpr std::size_t most_shown = 80, most_continued = 3;
  std::size_t end = std::min(text.size(), most_shown);
  // Not amid a letter of several bytes, all of which but the first begin with the bits 10.
  const auto is_continued = [&] { return end < text.size() && (text[end] & 0xc0) == 0x80; };
  for (std::size_t steps = 0; steps < most_continued && is_continued(); ++steps) {
    --end;
  }
  return without_controls(text.substr(0, end)) + (end < text.size() ? "..." : "");
}

std::string shown(const nlohmann::json& value) {
  if (value.is_string()) {
    return "\"" + printable(value.get_ref<const std::string&>()) + "\"";
  }
  return value.is_array() ? "a list" : value.is_object() ? "an object" : value.dump();
}

nlohmann::json parsed_json(std::string_view json, const std::string& origin, bool with_comments) {
  const auto refuse = [&origin](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, text(origin, ": ", why));
  };
  if (json.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    refuse("it is empty, and no JSON");
  }
  try {
    return nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/true, with_comments);
  } catch (const nlohmann::json::parse_error& error) {
    // Behind the last byte the parser still waited for more.
    refuse(error.byte > json.size()
               ? text("it ends amid JSON at byte ", json.size(), ": is it whole?")
               : text("it is no JSON from byte ", error.byte, " of ", json.size(), " on"));
  } catch (const nlohmann::json::out_of_range&) {
    refuse("it has a number that is too large");
  }
  return {};
}

}  // namespace sprat::planning
