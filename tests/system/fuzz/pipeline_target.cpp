// Pipeline schedules: each is refused with an Error, or can be validated and comes back.
#include <string>
#include <string_view>

#include "mp/text.hpp"
#include "mp/validate.hpp"
#include "sprat/error.hpp"
#include "tests/system/fuzz/targets.hpp"

namespace sprat::fuzz {

/// The first byte says whether the rest is CSV.
bool run_pipeline(std::span<const std::byte> input) {
  if (input.empty()) {
    return false;
  }
  const bool csv = std::to_integer<char>(input[0]) == 'c';
  const std::string_view text(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  try {
    const mp::Schedule schedule =
        csv ? mp::schedule_of_csv(text, "file") : mp::schedule_of_text(text, "file");
    expect(mp::schedule_of_csv(mp::to_csv(schedule), "file").actions == schedule.actions,
           "a schedule comes back as CSV");
    expect(mp::schedule_of_text(mp::to_text(schedule), "file").actions == schedule.actions,
           "a schedule comes back as text");
    for (const std::string& violation : mp::violations(schedule)) {
      expect(!violation.empty(), "a violation says what");
    }
    if (mp::violations(schedule).empty()) {
      expect(mp::least_message_capacity(schedule).has_value(), "what is valid can run");
    }
    expect(mp::peak_microbatches(schedule).size() == schedule.actions.size(), "a peak a rank");
    return true;
  } catch (const Error& error) {
    expect(*error.what() != '\0', "a refusal says why");
    return false;
  }
}

}  // namespace sprat::fuzz
