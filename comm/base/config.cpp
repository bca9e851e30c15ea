// Every setting: its variable, unit, meaning, and how its text is read and written.
#include "sprat/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/config.hpp"
#include "comm/base/log.hpp"
#include "comm/base/spelling.hpp"

namespace sprat {

const char* environment(const char* variable) noexcept { return std::getenv(variable); }

namespace {

using std::chrono::milliseconds;

struct Field {
  const char* name;
  const char* variable;
  const char* unit;
  const char* help;
  /// False if the text is not such a value.
  bool (*read)(Config& config, std::string_view text);
  std::string (*write)(const Config& config);
  const char* expects;
};

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

template <int Config::*member, int least>
bool read_integer(Config& config, std::string_view text) {
  const auto value = number<int>(text);
  if (!value || *value < least) {
    return false;
  }
  config.*member = *value;
  return true;
}

template <int Config::*member>
std::string write_integer(const Config& config) {
  return text(config.*member);
}

template <std::string Config::*member>
bool read_text(Config& config, std::string_view text) {
  config.*member = text;
  return true;
}

template <std::string Config::*member>
std::string write_text(const Config& config) {
  return config.*member;
}

// Of members of the configuration's parts.
template <auto part, auto member>
bool read_text_of(Config& config, std::string_view text) {
  config.*part.*member = text;
  return true;
}

template <auto part, auto member>
std::string write_text_of(const Config& config) {
  return config.*part.*member;
}

template <milliseconds Config::*member>
bool read_seconds(Config& config, std::string_view text) {
  constexpr double most = 1e9;  // 31 years: what a deadline can be computed from without overflow
  const auto value = number<double>(text);
  if (!value || !(*value >= 1e-3) || *value > most) {
    return false;
  }
  config.*member = milliseconds(std::llround(*value * 1e3));
  return true;
}

template <milliseconds Config::*member>
bool read_seconds_or_never(Config& config, std::string_view text) {
  if (text != "0") {
    return read_seconds<member>(config, text);
  }
  config.*member = milliseconds(0);
  return true;
}

template <milliseconds Config::*member>
std::string write_seconds(const Config& config) {
  return text(static_cast<double>((config.*member).count()) / 1e3);
}

bool read_ports(Config& config, std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = number<int>(text.substr(0, dash));
  const auto last = dash == text.npos ? first : number<int>(text.substr(dash + 1));
  if (!first || !last || *first < 1 || *last < *first || *last > 65535) {
    return false;
  }
  config.ports = {*first, *last};
  return true;
}

std::string write_ports(const Config& config) {
  return config.ports.any() ? "" : text(config.ports.first, "-", config.ports.last);
}

constexpr std::string_view suffixes = "KMG";

template <bool Config::*member>
bool read_switch(Config& config, std::string_view text) {
  config.*member = text == "1";
  return text == "0" || text == "1";
}

template <bool Config::*member>
std::string write_switch(const Config& config) {
  return config.*member ? "1" : "0";
}

bool read_digests_inputs(Config& config, std::string_view text) {
  config.digests.inputs = text == "1";
  return text == "0" || text == "1";
}

std::string write_digests_inputs(const Config& config) { return config.digests.inputs ? "1" : "0"; }

bool read_digests_check(Config& config, std::string_view text) {
  const auto value = number<int>(text);
  config.digests.check = value.value_or(0);
  return value && *value >= 0;
}

std::string write_digests_check(const Config& config) { return text(config.digests.check); }

bool read_staging(Config& config, std::string_view text) {
  int shift = 0;
  if (!text.empty() && suffixes.find(text.back()) != suffixes.npos) {
    shift = 10 * static_cast<int>(suffixes.find(text.back()) + 1);
    text.remove_suffix(1);
  }
  const auto value = number<std::size_t>(text);
  // A number that the suffix would shift out of the type is refused, not cut.
  if (!value || *value == 0 || *value > (SIZE_MAX >> shift)) {
    return false;
  }
  config.staging_bytes = *value << shift;
  return true;
}

std::string write_staging(const Config& config) {
  std::size_t value = config.staging_bytes;
  std::size_t suffix = 0;
  while (suffix < suffixes.size() && value != 0 && value % 1024 == 0) {
    value /= 1024;
    ++suffix;
  }
  return suffix == 0 ? text(value) : text(value, suffixes[suffix - 1]);
}

bool read_order(Config& config, std::string_view text) {
  for (const ReduceOrder order : {ReduceOrder::canonical, ReduceOrder::any}) {
    if (text != name(order)) {
      continue;
    }
    config.order = order;
    return true;
  }
  return false;
}

std::string write_order(const Config& config) { return name(config.order); }

bool read_log_level(Config& config, std::string_view text) {
  static constexpr std::array<std::string_view, 6> levels = {"trace", "debug", "info",
                                                             "warn",  "error", "off"};
  if (std::ranges::find(levels, text) == levels.end()) {
    return false;
  }
  config.log_level = text;
  return true;
}

/// The token is a secret: only whether there is one is shown.
std::string write_token(const Config& config) { return config.token.empty() ? "" : "(set)"; }

constexpr Field fields[] = {
    {"rank", "SPRAT_RANK", "rank", "This process's rank; -1: the launcher says.",
     read_integer<&Config::rank, 0>, write_integer<&Config::rank>, "0 or more"},
    {"size", "SPRAT_SIZE", "ranks", "How many ranks the job has; -1: the launcher says.",
     read_integer<&Config::size, 1>, write_integer<&Config::size>, "1 or more"},
    {"rendezvous", "SPRAT_RENDEZVOUS", "address",
     "Where ranks meet: tcp://host:port (of rank 0) or file://path; empty: the launcher says.",
     read_text<&Config::rendezvous>, write_text<&Config::rendezvous>, "an address"},
    {"host", "SPRAT_HOST", "name",
     "Name of this rank's host, or a comma list by rank; splits or merges hosts.",
     read_text<&Config::host>, write_text<&Config::host>, "names"},
    {"interface", "SPRAT_INTERFACE", "names",
     "Network interfaces to use, a comma list; with ^ in front, those not to use. Several that are "
     "named are rails: long messages are cut over all of them, others take turns.",
     read_text<&Config::interface>, write_text<&Config::interface>, "names"},
    {"ports", "SPRAT_PORTS", "ports",
     "Ports that Sprat may listen on, first-last; empty: any. The same on every rank.", read_ports,
     write_ports, "a range of ports from 1 to 65535, as in 30000-30099"},
    {"provider", "SPRAT_PROVIDER", "name",
     "What carries messages between hosts: sockets, Sprat's own, or libfabric, or one of its "
     "providers by name; empty: libfabric where a host has efa or InfiniBand "
     "(/sys/class/infiniband), else sockets. The same on every rank.",
     read_text<&Config::provider>, write_text<&Config::provider>, "a name"},
    {"topology", "SPRAT_TOPOLOGY", "path", "hwloc XML file that replaces detection.",
     read_text<&Config::topology>, write_text<&Config::topology>, "a path"},
    {"algorithm", "SPRAT_ALGORITHM", "rules",
     "Rules for choosing algorithms, put before all others. The same on every rank.",
     read_text<&Config::algorithm>, write_text<&Config::algorithm>, "rules"},
    {"tuning", "SPRAT_TUNING", "path",
     "File of rules put before the library's own, as sprat bench --tune writes it. Its content is "
     "the same on every rank.",
     read_text<&Config::tuning>, write_text<&Config::tuning>, "a path"},
    {"order", "SPRAT_ORDER", "order",
     "How reductions combine ranks: canonical, the same bits everywhere, or any, where that is "
     "faster. The same on every rank.",
     read_order, write_order, "canonical or any"},
    {"token", "SPRAT_TOKEN", "secret",
     "The job's shared secret. The same on every rank; empty: derived from the launch.",
     read_text<&Config::token>, write_token, "text"},
    {"encrypt", "SPRAT_ENCRYPT", "switch",
     "1: connections between processes are encrypted, by TLS 1.3 with a key made of SPRAT_TOKEN, "
     "which has 16 characters or more; messages between hosts go through Sprat's own sockets. The "
     "same on every rank.",
     read_switch<&Config::encrypt>, write_switch<&Config::encrypt>, "0 or 1"},
    {"log_level", "SPRAT_LOG", "level", "What is logged: trace, debug, info, warn, error or off.",
     read_log_level, write_text<&Config::log_level>, "trace, debug, info, warn, error or off"},
    {"join_timeout", "SPRAT_JOIN_TIMEOUT", "seconds", "How long joining waits for all ranks.",
     read_seconds<&Config::join_timeout>, write_seconds<&Config::join_timeout>,
     "seconds from 0.001 to 1e9"},
    {"timeout", "SPRAT_TIMEOUT", "seconds",
     "How long one operation waits for its peers. The same on every rank.",
     read_seconds<&Config::timeout>, write_seconds<&Config::timeout>, "seconds from 0.001 to 1e9"},
    {"staging_bytes", "SPRAT_STAGING", "bytes",
     "Shared memory that a communicator stages private buffers through; suffixes K, M, G. "
     "The same on every rank.",
     read_staging, write_staging, "bytes, 1 or more, with K, M or G behind"},
    {"cross_memory", "SPRAT_CROSS_MEMORY", "switch",
     "Processes of a host read each other's private memory where the kernel lets them; 0: only "
     "what "
     "is staged for them.",
     read_switch<&Config::cross_memory>, write_switch<&Config::cross_memory>, "0 or 1"},
    {"straggler_after", "SPRAT_STRAGGLER_AFTER", "seconds",
     "How long an operation waits until a warning says for whom; 0: never.",
     read_seconds_or_never<&Config::straggler_after>, write_seconds<&Config::straggler_after>,
     "0, or seconds from 0.001 to 1e9"},
    {"flight_recorder", "SPRAT_FLIGHT_RECORDER", "path",
     "Folder into which each rank writes its last operations when the job fails; empty: none.",
     read_text<&Config::flight_recorder>, write_text<&Config::flight_recorder>, "a path"},
    {"digests", "SPRAT_DIGESTS", "path",
     "Folder into which each rank writes digests of what its calls gave, for sprat diff; empty: "
     "none.",
     read_text_of<&Config::digests, &DigestConfig::folder>,
     write_text_of<&Config::digests, &DigestConfig::folder>, "a path"},
    {"digests_inputs", "SPRAT_DIGESTS_INPUTS", "switch",
     "Digests also of what ranks put into their calls: tells whose buffer differed first.",
     read_digests_inputs, write_digests_inputs, "0 or 1"},
    {"digests_check", "SPRAT_DIGESTS_CHECK", "steps",
     "Every so many steps ranks compare digests of results that all must have alike; 0: never. The "
     "same on every rank.",
     read_digests_check, write_digests_check, "0 or more"},
    {"digests_keep", "SPRAT_DIGESTS_KEEP", "call",
     "A call whose values are kept beside the digests, as sprat diff prints it; empty: none.",
     read_text_of<&Config::digests, &DigestConfig::keep>,
     write_text_of<&Config::digests, &DigestConfig::keep>, "a call"},
    {"trace", "SPRAT_TRACE", "path",
     "File for a timeline of all ranks, which Perfetto opens and sprat trace reads; rank 0 writes "
     "it when the job's program asks for it, else each rank leaves its part beside it; empty: "
     "none. A rank without it goes by the first that has it.",
     read_text<&Config::trace>, write_text<&Config::trace>, "a path"},
    {"fake_lustre", "SPRAT_FAKE_LUSTRE", "path",
     "For trials without Lustre: a folder that is taken for a mount of it. Layouts are in the "
     "files' "
     "attribute user.lustre.lov, sysfs is its folder .sys, and its line of mountinfo .mountinfo.",
     read_text<&Config::fake_lustre>, write_text<&Config::fake_lustre>, "a path"},
};

void read_into(Config& config, const Field& field, const char* value) {
  require(field.read(config, value), field.variable, " is \"", value, "\"; it must be ",
          field.expects);
}

std::string origin_of(const Field& field, const Config& config, const std::string& default_value) {
  const char* value = environment(field.variable);
  Config from_variable;
  // A program may change a field after the environment was read. So the variable counts as the
  // origin only if it still says what the field holds.
  if (value != nullptr && field.read(from_variable, value) &&
      field.write(from_variable) == field.write(config)) {
    return "environment";
  }
  return field.write(config) == default_value ? "default" : "program";
}

/// Read where no Config is at hand: they say something of the machine, not of a job.
constexpr std::array<std::string_view, 3> read_elsewhere = {
    "SPRAT_CUDA_DRIVER", "SPRAT_TRACE_PROCESSOR", "SPRAT_NCCL_VERSION"};

/// A misspelt variable would otherwise be ignored without a word. Every rank of a process reads the
/// environment, so only the first one warns.
void warn_of_unknown_variables(const Config& config) {
  static std::atomic<bool> warned = false;
  if (config.log_level == "error" || config.log_level == "off" || warned.exchange(true)) {
    return;
  }
  for (const UnknownVariable& unknown : unknown_variables()) {
    log().warn("nothing reads {}; the setting that is spelt most like it is {}", unknown.name,
               unknown.nearest);
  }
}

}  // namespace

std::vector<std::string> own_variables() {
  std::set<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    if (variable.starts_with("SPRAT_")) {
      names.emplace(variable.substr(0, variable.find('=')));
    }
  }
  return {names.begin(), names.end()};
}

std::vector<UnknownVariable> unknown_variables() {
  std::vector<UnknownVariable> unknown;
  for (const std::string& name : own_variables()) {
    // What begins with SPRAT_NCCL_ is read by the plugins for NCCL.
    if (name.starts_with("SPRAT_NCCL_") || std::ranges::count(read_elsewhere, name) > 0 ||
        std::ranges::count(fields, name, &Field::variable) > 0) {
      continue;
    }
    const auto nearest = std::ranges::min_element(
        fields, {}, [&name](const Field& field) { return edit_distance(name, field.variable); });
    unknown.push_back({name, nearest->variable});
  }
  return unknown;
}

Config Config::from_environment() {
  Config config;
  for (const Field& field : fields) {
    // An empty variable is as good as none: launch scripts pass on what they do not set.
    const char* value = environment(field.variable);
    if (value != nullptr && *value != '\0') {
      read_into(config, field, value);
    }
  }
  require(config.size < 0 || config.rank < config.size, "SPRAT_RANK is ", config.rank,
          ", SPRAT_SIZE is ", config.size, "; the rank must be below the size");
  warn_of_unknown_variables(config);
  return config;
}

std::vector<ConfigField> describe(const Config& config) {
  std::vector<ConfigField> described;
  for (const Field& field : fields) {
    const std::string default_value = field.write(Config());
    described.push_back({.name = field.name,
                         .variable = field.variable,
                         .unit = field.unit,
                         .default_value = default_value,
                         .value = field.write(config),
                         .origin = origin_of(field, config, default_value),
                         .help = field.help});
  }
  return described;
}

}  // namespace sprat
