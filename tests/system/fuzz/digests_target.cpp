// Files of digests and of kept values: refused with an Error, or compared with each other.
#include <string>
#include <string_view>

#include "collectives/digests/comparison.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {

namespace digests = collectives::digests;

namespace {

/// A rank of few, or the table of ranks alone would be what is measured.
bool is_small(const digests::DigestFile& file) { return file.about.size <= 64; }

void compare(const digests::DigestFile& file) {
  std::vector<const digests::DigestFile*> ranks(static_cast<std::size_t>(file.about.size));
  ranks[static_cast<std::size_t>(file.about.rank)] = &file;
  const digests::JobFiles job = digests::job_of("A", file.about.size, ranks);
  expect(digests::compare_runs(job, job).equal(), "a file is equal to itself");
  const digests::Comparison replicas = digests::compare_replicas(job);
  if (replicas.first) {  // messages of a rank to itself
    expect(!digests::place_text(*replicas.first).empty(), "a place has words");
    expect(!digests::range_text(*replicas.first).empty(), "a range has words");
  }
}

bool take_name(std::string_view text) {
  try {
    const digests::KeptCall call = digests::kept_call(text);
    expect(digests::kept_call(digests::to_text(call)) == call, "a call's name comes back");
    return true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

}  // namespace

/// The input is a file.
bool run_digests(std::span<const std::byte> input) {
  bool understood = false;
  try {
    const digests::DigestFile file = digests::parse("file", input);
    understood = !file.torn_at;
    for (const digests::ReadCall& call : file.calls) {
      expect(call.call.group < file.groups.size(), "a call's communicator is known");
      expect(!digests::words(call.call).empty(), "a call has words");
    }
    if (file.torn_at) {
      expect(*file.torn_at < input.size(), "it tears within");
      expect(!digests::parse("file", input.first(*file.torn_at)).torn_at,
             "up to there all is whole");
    }
    if (is_small(file)) {
      compare(file);
    }
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
  }
  if (const auto values = digests::parse_values(input)) {
    understood = true;
    expect(digests::compare(*values, *values).number == 0, "values are equal to themselves");
    if (values->bytes.size() >= size_of(values->dtype)) {
      expect(!digests::element_text(*values, 0).empty(), "an element has words");
    }
  }
  return take_name({reinterpret_cast<const char*>(input.data()), input.size()}) || understood;
}

}  // namespace sprat::fuzz
