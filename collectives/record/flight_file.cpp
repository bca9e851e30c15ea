#include "collectives/record/flight_file.hpp"

#include <string>

#include "collectives/record/flight_record.hpp"
#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/base/whole_file.hpp"
#include "comm/status/status_search.hpp"

namespace sprat::collectives {

namespace {

FlightRecord read_own_record(comm::Context& context) {
  const comm::status::Reader page = context.status().read();
  const double now = std::chrono::duration<double>(comm::Clock::now().time_since_epoch()).count();
  auto record = read_flight_record(page.bytes(), now);
  if (!record) {
    throw Error(ErrorCode::internal, "this rank's status page cannot be read");
  }
  return std::move(*record);
}

}  // namespace

std::string flight_record_of(comm::Context& context) { return to_json(read_own_record(context)); }

void leave_flight_record(comm::Context& context) noexcept {
  const std::string& folder = context.config().flight_recorder;
  if (folder.empty()) {
    return;
  }
  try {
    const FlightRecord record = read_own_record(context);
    const std::string path = text(folder, "/sprat-", record.job, "-rank", record.rank, ".json");
    write_whole_file(path, to_json(record) + "\n");
    log().info("the last operations of this rank are in {}", path);
  } catch (const std::exception& error) {
    log().error("cannot keep the last operations of this rank: {}", error.what());
  }
}

}  // namespace sprat::collectives
