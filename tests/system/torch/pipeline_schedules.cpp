// For pipeline_schedules_test.py: pipeline schedules to and from the CSV of
// torch.distributed.pipelining.
//
//   pipeline_schedules make NAME RANKS MICROBATCHES STAGES_PER_RANK messages|computation
//   pipeline_schedules check < CSV    the CSV again, behind a line "valid at capacity N"
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <span>
#include <string>

#include "mp/passes/passes.hpp"
#include "mp/text.hpp"
#include "mp/validate.hpp"
#include "sprat/error.hpp"

namespace {

int make(std::span<char*> arguments) {
  const sprat::mp::Schedule schedule = sprat::mp::make_schedule(
      sprat::mp::schedule_named(arguments[0]), {.ranks = std::atoi(arguments[1]),
                                                .microbatches = std::atoi(arguments[2]),
                                                .stages_per_rank = std::atoi(arguments[3])});
  const bool messages = std::string(arguments[4]) == "messages";
  std::cout << to_csv(messages ? sprat::mp::communicate(schedule) : schedule);
  return 0;
}

int check() {
  const std::string csv{std::istreambuf_iterator<char>(std::cin), {}};
  const sprat::mp::Schedule schedule = sprat::mp::schedule_of_csv(csv, "theirs");
  const auto found = violations(schedule);
  for (const std::string& violation : found) {
    std::cerr << violation << '\n';
  }
  if (!found.empty()) {
    return 1;
  }
  std::cout << "valid at capacity " << least_message_capacity(schedule).value_or(-1) << "\r\n"
            << to_csv(schedule);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const std::string command = count > 1 ? arguments[1] : "";
    if (command == "make" && count == 7) {
      return make({arguments + 2, 5});
    }
    if (command == "check" && count == 2) {
      return check();
    }
    std::cerr << "make NAME RANKS MICROBATCHES STAGES_PER_RANK messages|computation, or check\n";
  } catch (const sprat::Error& error) {
    std::cerr << error.what() << '\n';
  }
  return 2;
}
