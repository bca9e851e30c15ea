// The grammar of rules, and our default rules.
#include "collectives/plan/tuning.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <iterator>

#include "comm/base/check.hpp"
#include "comm/base/whole_file.hpp"

namespace sprat::collectives {

namespace {

// Bounds are where one algorithm overtakes the next; `sprat bench --tune` finds them on a machine
// (docs/tuning.md). The last rule of each collective has no condition, and its algorithm fits every
// problem in canonical order, so there always is one to choose. Between two hosts whole payloads
// cost the wire no more than parts there and back, and save a round.
constexpr std::string_view defaults = R"(
all_reduce hosts=1 ranks<=8 0-32k one_shot;
all_reduce hosts=1 0-4k one_shot;
all_reduce hosts=1 ranks<=2 apart=1 0-2m one_shot;
all_reduce hosts=1 ranks<=2 apart=1 dtype=f32 one_shot;
all_reduce hosts=1 direct;
all_reduce hosts=2 ranks<=2 0-512k one_shot;
all_reduce hosts=2 per_host<=4 0-128k doubling;
all_reduce hosts>1 0-8k doubling;
all_reduce hosts>1 ranks<=8 0-4k one_shot;
all_reduce hosts>1 ranks<=32 0-512 one_shot;
all_reduce partials>1 64m- ring;
all_reduce hierarchical;

all_gather hosts=1 direct;
all_gather hosts>2 0-8k bruck;
all_gather hosts>2 per_host>1 0-16k bruck;
all_gather hierarchical;
all_gather direct;

reduce_scatter hosts=1 direct;
reduce_scatter hosts>2 0-8k doubling;
reduce_scatter hosts>2 per_host>1 0-16k doubling;
reduce_scatter partials>1 64m- ring;
reduce_scatter hierarchical;
reduce_scatter direct;

broadcast hosts=1 flat;
broadcast hosts>2 32k- chain;
broadcast 1m- chain;
broadcast flat;

all_to_all direct;

barrier dissemination;

reduce hosts=1 direct;
reduce per_host=1 direct;
reduce hierarchical;

gather direct;
scatter direct;

gatherv exchange;
scatterv exchange;
all_to_allv exchange;
)";

// In the order of Condition's enumerators, by which they are found.
constexpr std::array<std::string_view, 5> properties = {"ranks", "hosts", "per_host", "apart",
                                                        "partials"};
constexpr std::array<std::string_view, 5> relations = {"<", "<=", "=", ">=", ">"};
constexpr std::string_view relation_signs = "<=>";
constexpr std::string_view spaces = " \t\r\n";

/// A rule as it is written, and where.
struct Clause {
  std::string_view text;
  std::string_view origin;
  int line = 1;

  std::string place() const { return fmt::format("{} line {}", origin, line); }
};

/// The word is part of the rule's text, so its address tells at which character it stands.
[[noreturn]] void refuse(const Clause& rule, std::string_view word, std::string_view why) {
  const auto column = static_cast<std::size_t>(word.data() - rule.text.data());
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: algorithm rule \"{}\": \"{}\" (at character {}) {}", rule.place(),
                          rule.text, word, column + 1, why));
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(spaces);
  if (first == std::string_view::npos) {
    return text.substr(text.size());
  }
  return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; (begin = text.find_first_not_of(spaces, begin)) < text.size();) {
    const std::size_t end = std::min(text.find_first_of(spaces, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

/// None unless all of the word is the number: "8x" is a mistake, not 8.
template <class Number>
std::optional<Number> number_of(std::string_view digits) {
  Number value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return value;
}

/// 64k is 65536.
std::optional<std::size_t> bytes_of_word(std::string_view word) {
  if (word.empty()) {
    return std::nullopt;
  }
  int shift = 0;
  if (const std::size_t unit = std::string_view("kmg").find(word.back());
      unit != std::string_view::npos) {
    shift = 10 * (static_cast<int>(unit) + 1);
    word.remove_suffix(1);
  }
  const auto value = number_of<std::size_t>(word);
  // Shifted further it would wrap to a small number that nobody has written.
  if (!value || *value > (std::numeric_limits<std::size_t>::max() >> shift)) {
    return std::nullopt;
  }
  return *value << shift;
}

/// The same backwards, with the largest unit that leaves a whole number.
std::string text_of_bytes(std::size_t bytes) {
  std::string_view unit;
  for (std::string_view larger : {"k", "m", "g"}) {
    if (bytes == 0 || bytes % 1024 != 0) {
      break;
    }
    bytes /= 1024;
    unit = larger;
  }
  return fmt::format("{}{}", bytes, unit);
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/// "4k-" has no end; "4k" alone is no range, for it might be meant as either end.
void parse_range(const Clause& rule, std::string_view word, Rule& into) {
  const std::size_t dash = word.find('-');
  const auto least = bytes_of_word(word.substr(0, dash));
  const bool open = dash + 1 == word.size();
  const auto most = dash == std::string_view::npos ? std::nullopt
                    : open                         ? std::optional(into.most_bytes)
                                                   : bytes_of_word(word.substr(dash + 1));
  if (!least || !most || *least > *most) {
    refuse(rule, word, "is not a range of bytes such as 0-64k or 1m-");
  }
  into.least_bytes = *least;
  into.most_bytes = *most;
}

void parse_condition(const Clause& rule, std::string_view word, Rule& into) {
  // Whatever lies between the first sign and the next letter is the relation, so that "=>" is named
  // as the mistake instead of what would be left of it.
  const std::size_t sign = word.find_first_of(relation_signs);
  const std::size_t operand = word.find_first_not_of(relation_signs, sign);
  if (sign == std::string_view::npos || operand == std::string_view::npos) {
    refuse(rule, word, "is not a condition such as 0-64k, hosts>1 or dtype=f32");
  }
  const std::string_view left = word.substr(0, sign), right = word.substr(operand);
  const auto relation = std::ranges::find(relations, word.substr(sign, operand - sign));
  if (relation == relations.end()) {
    refuse(rule, word, "has no relation among < <= = >= >");
  }
  // The one property that is no number, so it is kept apart.
  if (left == "dtype") {
    const auto dtype = std::ranges::find_if(
        all_dtypes(), [right](DType candidate) { return right == name(candidate); });
    if (*relation != "=" || dtype == all_dtypes().end()) {
      refuse(rule, word, "is not dtype= and an element type such as f32");
    }
    into.dtype = *dtype;
    return;
  }
  const auto property = std::ranges::find(properties, left);
  if (property == properties.end()) {
    refuse(rule, word, "speaks of none of ranks, hosts, per_host, apart, partials, dtype");
  }
  const auto value = number_of<int>(right);
  if (!value) {
    refuse(rule, word, "does not end in a number");
  }
  into.conditions.push_back(
      {.property = static_cast<Condition::Property>(property - properties.begin()),
       .relation = static_cast<Condition::Relation>(relation - relations.begin()),
       .value = *value});
}

std::optional<Collective> collective_of(std::string_view word) {
  for (const Algorithm* algorithm : all_algorithms()) {
    if (word == name(algorithm->collective)) {
      return algorithm->collective;
    }
  }
  return std::nullopt;
}

std::string names_of(Collective collective) {
  std::string names;
  for (const Algorithm* algorithm : all_algorithms()) {
    if (algorithm->collective != collective) {
      continue;
    }
    names += names.empty() ? "" : ", ";
    names += algorithm->name;
  }
  return names;
}

/// The first word is the collective, the last the algorithm; between them conditions stand in any
/// order. A word that begins with a digit can only be a range.
Rule parse_rule(const Clause& rule) {
  const std::vector<std::string_view> words = words_of(rule.text);
  const auto collective = collective_of(words.front());
  if (!collective) {
    refuse(rule, words.front(), "is not a collective such as all_reduce");
  }
  Rule parsed;
  parsed.origin = rule.place();
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    if (is_digit(words[i].front())) {
      parse_range(rule, words[i], parsed);
    } else {
      parse_condition(rule, words[i], parsed);
    }
  }
  const std::string_view last = words.back();
  parsed.algorithm = words.size() > 1 ? find_algorithm(*collective, last) : nullptr;
  if (parsed.algorithm == nullptr) {
    refuse(rule, last,
           text("is not followed by, or is not, an algorithm of ", name(*collective), ": ",
                names_of(*collective)));
  }
  return parsed;
}

/// The largest of what `of` gives for each host.
int most(const Grouping& grouping, const std::function<std::size_t(int host)>& of) {
  std::size_t most = 0;
  for (int host = 0; host < grouping.hosts(); ++host) {
    most = std::max(most, of(host));
  }
  return static_cast<int>(most);
}

/// Only of what all ranks know, so that they all come to the same value.
int value_of(Condition::Property property, const Problem& problem) {
  const Grouping& grouping = *problem.grouping;
  switch (property) {
    case Condition::Property::ranks:
      return problem.ranks();
    case Condition::Property::hosts:
      return grouping.hosts();
    case Condition::Property::out_of_place:
      return problem.out_of_place ? 1 : 0;
    case Condition::Property::per_host:
      return most(grouping, [&](int host) { return grouping.members(host).size(); });
    case Condition::Property::partials:
      return most(grouping, [&](int host) { return grouping.subtrees(host).size(); });
  }
  return 0;
}

bool holds(const Condition& condition, const Problem& problem) {
  const int value = value_of(condition.property, problem);
  switch (condition.relation) {
    case Condition::Relation::less:
      return value < condition.value;
    case Condition::Relation::at_most:
      return value <= condition.value;
    case Condition::Relation::equal:
      return value == condition.value;
    case Condition::Relation::at_least:
      return value >= condition.value;
    case Condition::Relation::more:
      return value > condition.value;
  }
  return false;
}

}  // namespace

// Line by line, for a comment ends with its line and an error names it; a line may hold several
// rules.
Rules parse_rules(std::string_view text, std::string_view origin) {
  Rules rules;
  int line = 1;
  for (std::size_t begin = 0; begin <= text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view rest = text.substr(begin, end - begin);
    rest = rest.substr(0, rest.find('#'));
    while (!rest.empty()) {
      const std::size_t semicolon = std::min(rest.find(';'), rest.size());
      const Clause rule{trimmed(rest.substr(0, semicolon)), origin, line};
      if (!rule.text.empty()) {
        rules.push_back(parse_rule(rule));
      }
      rest.remove_prefix(std::min(semicolon + 1, rest.size()));
    }
    begin = end + 1;
  }
  return rules;
}

Rules read_rules(const std::string& path) {
  return parse_rules(read_setting_file("SPRAT_TUNING", path), path);
}

// What this gives is read back by parse_rules() as the same rule.
std::string describe(const Rule& rule) {
  std::string out = name(rule.algorithm->collective);
  const bool bounded = rule.most_bytes != std::numeric_limits<std::size_t>::max();
  if (rule.least_bytes > 0 || bounded) {
    out += fmt::format(" {}-{}", text_of_bytes(rule.least_bytes),
                       bounded ? text_of_bytes(rule.most_bytes) : "");
  }
  for (const Condition& condition : rule.conditions) {
    out += fmt::format(" {}{}{}", properties[static_cast<std::size_t>(condition.property)],
                       relations[static_cast<std::size_t>(condition.relation)], condition.value);
  }
  if (rule.dtype) {
    out += fmt::format(" dtype={}", name(*rule.dtype));
  }
  return out + " " + rule.algorithm->name;
}

std::string_view default_rules() { return defaults; }

// The first rule that applies wins, so whoever is to be heard first comes first. A default of
// another order is left out silently, since nobody asked for it; a rule of the user's is refused,
// since leaving it out would do something else than it says.
Rules rules_of(const Config& config) {
  const auto allowed = [&config](const Rule& rule) {
    return config.order == ReduceOrder::any || rule.algorithm->order == ReduceOrder::canonical;
  };
  Rules rules = parse_rules(config.algorithm, "SPRAT_ALGORITHM");
  if (!config.tuning.empty()) {
    std::ranges::copy(read_rules(config.tuning), std::back_inserter(rules));
  }
  for (const Rule& rule : rules) {
    require(allowed(rule), rule.origin, ": algorithm rule \"", describe(rule),
            "\" reduces in another order than the canonical; set SPRAT_ORDER=any to allow it");
  }
  for (Rule& rule : parse_rules(defaults)) {
    if (!allowed(rule)) {
      continue;
    }
    rule.origin = "default";
    rules.push_back(std::move(rule));
  }
  return rules;
}

bool applies(const Rule& rule, const Problem& problem) {
  const std::size_t bytes = problem.payload_bytes();
  return rule.algorithm->collective == problem.collective && rule.least_bytes <= bytes &&
         bytes <= rule.most_bytes && (!rule.dtype || *rule.dtype == problem.input) &&
         std::ranges::all_of(rule.conditions, [&problem](const Condition& condition) {
           return holds(condition, problem);
         });
}

}  // namespace sprat::collectives
