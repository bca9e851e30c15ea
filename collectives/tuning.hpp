// Which algorithm is chosen when, as data: one grammar for our defaults and the user's override.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/problem.hpp"

namespace sprat::collectives {

/// A property of a problem held against a number.
struct Condition {
  enum class Property : std::uint8_t { ranks, hosts, per_host, apart };
  enum class Relation : std::uint8_t { less, at_most, equal, at_least, more };
  Property property = Property::ranks;
  Relation relation = Relation::equal;
  int value = 0;
};

/// "all_reduce 0-64k hosts>1 dtype=f32 one_shot": this algorithm where all conditions hold.
struct Rule {
  const Algorithm* algorithm = nullptr;  ///< Says the collective too.
  std::size_t least_bytes = 0;           ///< Of Problem::payload_bytes(), both ends included.
  std::size_t most_bytes = std::numeric_limits<std::size_t>::max();
  std::vector<Condition> conditions;
  std::optional<DType> dtype;  ///< Of the input.
};

using Rules = std::vector<Rule>;

/// Rules separated by `;`, each: a collective, conditions in any order, the algorithm's name.
/// Conditions: a range of payload bytes (`0-64k`, `1m-`; k, m, g are powers of 1024); `ranks`,
/// `hosts`, `per_host` (most ranks on a host) or `apart` (1: no rank calls in place) with <, <=, =,
/// >=, > and a number; `dtype=f32`. Throws Error{invalid_argument} that shows the word it does not
/// understand.
Rules parse_rules(std::string_view text);
/// The rule in the same grammar.
std::string describe(const Rule& rule);

/// The text of the rules that hold where no override does. The last of a collective fits
/// everywhere.
std::string_view default_rules();
/// `override_text` (Config::algorithm) before the defaults.
Rules rules_with(std::string_view override_text);

bool applies(const Rule& rule, const Problem& problem);

}  // namespace sprat::collectives
