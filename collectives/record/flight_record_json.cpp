// A flight record as JSON, and back.
#include <nlohmann/json.hpp>

#include "collectives/record/flight_record.hpp"
#include "comm/base/check.hpp"
#include "comm/base/strict_json.hpp"
#include "comm/base/whole_file.hpp"

namespace sprat::collectives {
namespace {

using Json = nlohmann::ordered_json;
using State = CallState;

constexpr const char* format = "sprat flight record 1";

State state_named(const std::string& word) {
  for (const State state : {State::queued, State::running, State::done, State::failed}) {
    if (word == name(state)) {
      return state;
    }
  }
  throw Error(ErrorCode::invalid_argument, text("\"", word, "\" is no state of an operation"));
}

/// Times in the file are seconds since 1970, so that a person can compare them; null: not yet.
Json time_json(double time, double offset) { return time == 0 ? Json() : Json(time + offset); }

double time_from(const Json& time) { return time.is_null() ? 0 : time.get<double>(); }

Json operation_json(const RecordedOperation& one, double offset) {
  return {{"sequence", one.sequence},
          {"call", one.call},
          {"signature", one.signature},
          {"bytes", one.bytes},
          {"algorithm", one.algorithm},
          {"state", name(one.state)},
          {"posted", time_json(one.posted, offset)},
          {"started", time_json(one.started, offset)},
          {"ended", time_json(one.ended, offset)},
          {"late", one.late},
          {"waits_for", one.waits_for}};
}

RecordedOperation operation_from(const Json& json) {
  return {.sequence = whole_number<std::uint64_t>(json.at("sequence")),
          .call = json.at("call").get<std::string>(),
          .signature = json.at("signature").get<std::string>(),
          .bytes = whole_number<std::uint64_t>(json.at("bytes")),
          .algorithm = json.at("algorithm").get<std::string>(),
          .state = state_named(json.at("state").get<std::string>()),
          .posted = time_from(json.at("posted")),
          .started = time_from(json.at("started")),
          .ended = time_from(json.at("ended")),
          .late = whole_numbers<int>(json.at("late")),
          .waits_for = whole_numbers<int>(json.at("waits_for"))};
}

Json message_json(const RecordedMessage& one, double offset) {
  return {{"direction", one.sends ? "send" : "recv"},
          {"peer", one.peer},
          {"tag", one.tag},
          {"bytes", one.bytes},
          {"state", name(one.state)},
          {"posted", time_json(one.posted, offset)},
          {"ended", time_json(one.ended, offset)}};
}

RecordedMessage message_from(const Json& json) {
  return {.sends = json.at("direction").get<std::string>() == "send",
          .peer = whole_number<int>(json.at("peer")),
          .tag = whole_number<int>(json.at("tag")),
          .bytes = whole_number<std::uint64_t>(json.at("bytes")),
          .state = state_named(json.at("state").get<std::string>()),
          .posted = time_from(json.at("posted")),
          .ended = time_from(json.at("ended"))};
}

RecordedCommunicator communicator_from(const Json& json) {
  RecordedCommunicator one{.id = whole_number<std::uint64_t>(json.at("id")),
                           .name = json.at("name").get<std::string>(),
                           .rank = whole_number<int>(json.at("rank")),
                           .size = whole_number<int>(json.at("size")),
                           .world_ranks = whole_numbers<int>(json.at("world_ranks")),
                           .posted = whole_number<std::uint64_t>(json.at("posted")),
                           .ended = whole_number<std::uint64_t>(json.at("ended")),
                           .operations = {},
                           .messages = {}};
  for (const Json& operation : json.at("operations")) {
    one.operations.push_back(operation_from(operation));
  }
  for (const Json& message : json.at("messages")) {
    one.messages.push_back(message_from(message));
  }
  return one;
}

FlightRecord record_from(const Json& json) {
  require(json.at("format") == format, "its format is not \"", format, "\"");
  FlightRecord record{.pid = whole_number<std::int64_t>(json.at("pid")),
                      .rank = whole_number<int>(json.at("rank")),
                      .size = whole_number<int>(json.at("size")),
                      .hosts = json.contains("hosts") ? whole_number<int>(json.at("hosts")) : 0,
                      .host = json.at("host").get<std::string>(),
                      .job = json.at("job").get<std::string>(),
                      .failure = json.at("failure").get<std::string>(),
                      .waiting_threads = whole_number<std::int64_t>(json.at("waiting_threads")),
                      .waited = json.value("waited", 0.0),
                      .started = json.value("started", 0.0),
                      .totals = {},
                      .taken = json.at("taken").get<double>(),
                      .unix_offset = 0,
                      .communicators = {},
                      .unlisted = whole_number<std::uint64_t>(json.at("unlisted"))};
  for (const Json& total : json.value("totals", Json::array())) {
    record.totals.push_back({.operation = total.at("operation").get<std::string>(),
                             .calls = whole_number<std::uint64_t>(total.at("calls")),
                             .bytes = whole_number<std::uint64_t>(total.at("bytes"))});
  }
  for (const Json& communicator : json.at("communicators")) {
    record.communicators.push_back(communicator_from(communicator));
  }
  return record;
}

}  // namespace

std::string to_json(const FlightRecord& record) {
  const double offset = record.unix_offset;
  Json json = {{"format", format},
               {"pid", record.pid},
               {"rank", record.rank},
               {"size", record.size},
               {"hosts", record.hosts},
               {"host", record.host},
               {"job", record.job},
               {"failure", record.failure},
               {"waiting_threads", record.waiting_threads},
               {"waited", record.waited},
               {"started", record.started + offset},
               {"totals", Json::array()},
               {"taken", record.taken + offset},
               {"unlisted", record.unlisted},
               {"communicators", Json::array()}};
  for (const RecordedTotal& one : record.totals) {
    json["totals"].push_back(
        {{"operation", one.operation}, {"calls", one.calls}, {"bytes", one.bytes}});
  }
  for (const RecordedCommunicator& one : record.communicators) {
    Json operations = Json::array(), messages = Json::array();
    for (const RecordedOperation& operation : one.operations) {
      operations.push_back(operation_json(operation, offset));
    }
    for (const RecordedMessage& message : one.messages) {
      messages.push_back(message_json(message, offset));
    }
    json["communicators"].push_back({{"id", one.id},
                                     {"name", one.name},
                                     {"rank", one.rank},
                                     {"size", one.size},
                                     {"world_ranks", one.world_ranks},
                                     {"posted", one.posted},
                                     {"ended", one.ended},
                                     {"operations", std::move(operations)},
                                     {"messages", std::move(messages)}});
  }
  return json.dump(2);
}

FlightRecord flight_record_from_json(std::string_view json) {
  try {
    return record_from(Json::parse(json));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::invalid_argument, text("this is no flight record: ", reason_of(error)));
  }
}

FlightRecord read_flight_record_file(const std::string& path) {
  const std::string json = read_whole_file(path);
  try {
    return flight_record_from_json(json);
  } catch (const Error& error) {
    throw Error(error.code(), text(path, ": ", error.what()));
  }
}

}  // namespace sprat::collectives
