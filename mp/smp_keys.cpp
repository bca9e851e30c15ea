// The table of SMP's keys, from smp_keys.def.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "comm/base/check.hpp"
#include "sprat/smp.hpp"

namespace sprat {
namespace {

/// A default as a row of the table writes it.
struct Standard {
  SmpValue value;
  std::string_view follows = {};

  Standard() = default;
  Standard(bool flag) : value(flag) {}
  Standard(int whole) : value(std::int64_t{whole}) {}
  Standard(double number) : value(number) {}
  Standard(const char* word) : value(std::string(word)) {}
};

std::vector<SmpKey> read_table() {
  const Standard none;
  const auto follows = [](std::string_view words) {
    Standard standard;
    standard.follows = words;
    return standard;
  };
  // A bound of a row is a number, or this.
  constexpr double any = std::numeric_limits<double>::infinity();
  constexpr auto v1 = SmpVersion::v1, v2 = SmpVersion::v2;
  using enum SmpKind;
  std::vector<SmpKey> table;
  const auto add = [&](SmpKey key, const Standard& standard) {
    key.standard = standard.value;
    key.follows = standard.follows;
    key.least = key.least == any ? -any : key.least;  // `any` bounds nothing on either side
    table.push_back(std::move(key));
  };
#define SPRAT_SMP_KEY(version_, source_, name_, kind_, default_, least_, most_, choices_, served_, \
                      how_)                                                                        \
  add({.version = version_,                                                                        \
       .name = #name_,                                                                             \
       .source = #source_,                                                                         \
       .kind = kind_,                                                                              \
       .standard = {},                                                                             \
       .follows = {},                                                                              \
       .least = least_,                                                                            \
       .most = most_,                                                                              \
       .choices = choices_,                                                                        \
       .served = served_,                                                                          \
       .how = how_},                                                                               \
      Standard(default_));
#include "mp/smp_keys.def"
  return table;
}

}  // namespace

std::string_view name(SmpVersion version) noexcept {
  return version == SmpVersion::v1 ? "v1" : "v2";
}

const std::vector<SmpKey>& smp_keys() {
  static const std::vector<SmpKey> table = read_table();
  return table;
}

const SmpKey& smp_key(SmpVersion version, std::string_view wanted) {
  const auto& table = smp_keys();
  const auto found = std::ranges::find_if(
      table, [&](const SmpKey& key) { return key.version == version && key.name == wanted; });
  require(found != table.end(), "SMP ", name(version), " has no key \"", wanted, "\"");
  return *found;
}

std::string legal_values(const SmpKey& key) {
  if (!key.choices.empty()) {
    std::string out = "\"";
    for (const char letter : key.choices) {
      out += letter == ' ' ? "\", \"" : std::string(1, letter);
    }
    return out + "\"";
  }
  static constexpr std::array<std::string_view, 4> words = {"integer", "number", "true or false",
                                                            "text"};
  const std::string_view word = words[static_cast<std::size_t>(key.kind)];
  const bool below = std::isfinite(key.least), above = std::isfinite(key.most);
  if (above) {
    return text(word, " from ", key.least, " to ", key.most);
  }
  return below ? text(word, ", at least ", key.least) : std::string(word);
}

}  // namespace sprat
