// The table of samplings: every file of io/order/samplings/, in order; and their options by name.
#include <algorithm>
#include <array>

#include "comm/base/check.hpp"
#include "io/order/sampling.hpp"

// One entry a file; a test compares the list with the folder.
#define SPRAT_SAMPLINGS(entry) entry(packed_cut) entry(packed_whole) entry(records) entry(windows)

namespace sprat::io {
namespace {

const char* shuffle_name(Shuffle shuffle) {
  switch (shuffle) {
    case Shuffle::none:
      return "none";
    case Shuffle::full:
      return "full";
    case Shuffle::chunks:
      return "chunks";
  }
  return "";
}

struct SamplingOption {
  std::string_view name;
  std::string (*value)(const SamplingOptions& options);
};
using TakenOptions = const SamplingOptions&;
// The names stand in saved states.
constexpr std::array sampling_options = {
    SamplingOption{"shuffle", [](TakenOptions o) { return std::string(shuffle_name(o.shuffle)); }},
    SamplingOption{"chunk", [](TakenOptions o) { return text(o.chunk); }},
    SamplingOption{"mixed_chunks", [](TakenOptions o) { return text(o.mixed_chunks); }},
    SamplingOption{"length", [](TakenOptions o) { return text(o.length); }},
    SamplingOption{"across_files",
                   [](TakenOptions o) { return std::string(o.across_files ? "yes" : "no"); }},
    SamplingOption{"separator",
                   [](TakenOptions o) { return o.separator ? text(*o.separator) : "none"; }},
    SamplingOption{"element_bytes", [](TakenOptions o) { return text(o.element_bytes); }},
    SamplingOption{"block", [](TakenOptions o) { return text(o.block); }},
};

const SamplingKind& sampling_kind_named(std::string_view name) {
  std::string names;
  for (const SamplingKind* kind : all_sampling_kinds()) {
    if (kind->name == name) {
      return *kind;
    }
    names += text(names.empty() ? "" : ", ", kind->name);
  }
  throw Error(ErrorCode::invalid_argument, text("no sampling \"", name, "\"; there are ", names));
}

}  // namespace

#define SPRAT_DECLARE(name) extern const SamplingKind name##_sampling;
SPRAT_SAMPLINGS(SPRAT_DECLARE)
#undef SPRAT_DECLARE

std::span<const SamplingKind* const> all_sampling_kinds() noexcept {
#define SPRAT_ADDRESS(name) &name##_sampling,
  static constexpr std::array kinds = {SPRAT_SAMPLINGS(SPRAT_ADDRESS)};
#undef SPRAT_ADDRESS
  return kinds;
}

std::unique_ptr<const Sampling> make_sampling(SamplingInput input) {
  const SamplingKind& kind = sampling_kind_named(input.options.kind);
  // An option that a sampling does not read would be a wish that nobody hears.
  for (const SamplingOption& option : sampling_options) {
    require(option.value(input.options) == default_option(option.name) ||
                std::ranges::find(kind.options, option.name) != kind.options.end(),
            "kind=", kind.name, " takes no ", option.name, ": leave ", option.name, "=",
            option.value(input.options), " out");
  }
  return kind.make(std::move(input));
}

void run_in_turn(std::size_t tasks, const std::function<void(std::size_t)>& task) {
  for (std::size_t i = 0; i < tasks; ++i) {
    task(i);
  }
}

std::string options_text(const SamplingOptions& options) {
  std::string all = "kind=" + options.kind;
  for (const SamplingOption& option : sampling_options) {
    const std::string value = option.value(options);
    if (value != default_option(option.name)) {
      all += text(" ", option.name, "=", value);
    }
  }
  return all;
}

std::string default_option(std::string_view name) {
  const auto option = std::ranges::find(sampling_options, name, &SamplingOption::name);
  return option == sampling_options.end() ? "" : option->value(SamplingOptions{});
}

}  // namespace sprat::io
