#include "collectives/record/flight_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "collectives/record/flight_record.hpp"
#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/status/status_search.hpp"

namespace sprat::collectives {

void write_file(const std::string& path, const std::string& content) {
  const std::string part = path + ".part";
  std::FILE* file = std::fopen(part.c_str(), "we");
  need(file != nullptr, path, ": ", std::strerror(errno));
  bool good = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  good = std::fclose(file) == 0 && good;  // an error of a full disk may come only here
  good = good && std::rename(part.c_str(), path.c_str()) == 0;
  if (!good) {
    const std::string why = std::strerror(errno);
    std::remove(part.c_str());
    throw Error(ErrorCode::unavailable, text(path, ": ", why));
  }
}

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
    write_file(path, to_json(record) + "\n");
    log().info("the last operations of this rank are in {}", path);
  } catch (const std::exception& error) {
    log().error("cannot keep the last operations of this rank: {}", error.what());
  }
}

}  // namespace sprat::collectives
