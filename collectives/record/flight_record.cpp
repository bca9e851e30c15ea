#include "collectives/record/flight_record.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "collectives/plan/signature.hpp"
#include "comm/base/check.hpp"
#include "comm/status/status_page.hpp"
#include "comm/status/status_search.hpp"

namespace sprat::collectives {
namespace {

namespace status = comm::status;

double seconds(std::int64_t ns) { return 1e-9 * static_cast<double>(ns); }

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The bytes come from another process: what a terminal or a JSON reader cannot bear becomes a
/// question mark.
template <std::size_t size>
std::string printable(const char (&name)[size]) {
  std::string out(name, strnlen(name, size));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

std::string call_text(const status::Operation& shown) {
  Signature call;
  std::memcpy(static_cast<void*>(&call), shown.signature, sizeof call);
  if (call.collective == Collective::barrier) {
    return "barrier";
  }
  std::string out = text(name(call.collective), " of ", call.count, " ", name(call.input));
  if (reduces(call.collective)) {
    out += text(", ", name(call.op));
  }
  if (call.input != call.output) {
    out += text(" to ", name(call.output));
  }
  if (has_root(call.collective)) {
    out += text(", root ", shown.root);
  }
  return out;
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte byte : bytes) {
    out += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  return out;
}

std::optional<CallState> state_of(status::State state) {
  switch (state) {
    case status::State::none:
      return std::nullopt;
    case status::State::queued:
      return CallState::queued;
    case status::State::running:
      return CallState::running;
    case status::State::done:
      return CallState::done;
    case status::State::failed:
      return CallState::failed;
  }
  return std::nullopt;  // a byte that no Sprat writes
}

std::vector<RecordedOperation> read_operations(const status::Communicator& page, int ranks) {
  std::vector<RecordedOperation> operations;
  for (const auto& entry : page.operations) {
    const auto shown = entry.read();
    const auto state = shown ? state_of(shown->state) : std::nullopt;
    if (!state) {
      continue;
    }
    RecordedOperation one{.sequence = shown->sequence,
                          .call = call_text(*shown),
                          .signature = hexadecimal(shown->signature),
                          .bytes = shown->bytes,
                          .algorithm = printable(shown->algorithm),
                          .state = *state,
                          .posted = seconds(shown->posted_ns),
                          .started = seconds(shown->started_ns),
                          .ended = seconds(shown->ended_ns),
                          .late = {},
                          .waits_for = {}};
    // Counts and ranks of the page are not believed: they are held against the bounds of its arrays
    // and of the job.
    const std::size_t awaited = std::min<std::size_t>(shown->awaited, shown->most_awaited);
    for (std::size_t i = 0; i < awaited; ++i) {
      if (shown->awaits[i] >= 0 && shown->awaits[i] < ranks) {
        (i < shown->late ? one.late : one.waits_for).push_back(shown->awaits[i]);
      }
    }
    operations.push_back(std::move(one));
  }
  std::ranges::sort(operations, {}, &RecordedOperation::sequence);
  return operations;
}

std::vector<RecordedMessage> read_messages(const status::Communicator& page, int size) {
  std::vector<status::Message> shown;
  for (const auto& entry : page.messages) {
    if (const auto one = entry.read();
        one && state_of(one->state) && one->peer >= -1 && one->peer < size) {
      shown.push_back(*one);
    }
  }
  std::ranges::sort(shown, {}, &status::Message::number);
  std::vector<RecordedMessage> messages;
  for (const status::Message& one : shown) {
    messages.push_back({.sends = one.sends != 0,
                        .peer = one.peer,
                        .tag = one.tag,
                        .bytes = one.bytes,
                        .state = *state_of(one.state),
                        .posted = seconds(one.posted_ns),
                        .ended = seconds(one.ended_ns)});
  }
  return messages;
}

std::optional<RecordedCommunicator> read_communicator(const status::Communicator& page, int ranks) {
  const auto membership = page.membership.read();
  if (!membership || membership->in_use != 1 || membership->size < 1 || membership->size > ranks ||
      membership->rank < 0 || membership->rank >= membership->size) {
    return std::nullopt;
  }
  RecordedCommunicator one{.id = membership->id,
                           .name = printable(membership->name),
                           .rank = membership->rank,
                           .size = membership->size,
                           .world_ranks = {},
                           .posted = page.posted.load(std::memory_order_relaxed),
                           .ended = page.ended.load(std::memory_order_relaxed),
                           .operations = read_operations(page, ranks),
                           .messages = read_messages(page, membership->size)};
  const auto listed = std::min<std::size_t>(static_cast<std::size_t>(membership->size),
                                            status::Membership::most_listed);
  for (std::size_t i = 0; i < listed; ++i) {
    const int world = membership->world_ranks[i];
    if (world < 0 || world >= ranks) {
      return std::nullopt;
    }
    one.world_ranks.push_back(world);
  }
  return one;
}

std::vector<RecordedTotal> read_totals(const status::Totals& page) {
  std::vector<RecordedTotal> totals;
  const auto add = [&](const char* operation, const status::Total& total) {
    const std::uint64_t calls = total.calls.load(std::memory_order_relaxed);
    if (calls > 0) {
      totals.push_back({operation, calls, total.bytes.load(std::memory_order_relaxed)});
    }
  };
  const auto add_collective = [&](Collective one) {
    add(name(one), page.collectives[static_cast<std::size_t>(one)]);
  };
  std::ranges::for_each(all_collectives(), add_collective);
  add_collective(Collective::barrier);
  add("send", page.sends);
  add("recv", page.receives);
  return totals;
}

}  // namespace

const char* name(CallState state) noexcept {
  switch (state) {
    case CallState::queued:
      return "queued";
    case CallState::running:
      return "running";
    case CallState::done:
      return "done";
    case CallState::failed:
      return "failed";
  }
  return "unknown state";
}

std::optional<FlightRecord> read_flight_record(std::span<const std::byte> bytes, double now) {
  if (bytes.size() < sizeof(status::Page)) {
    return std::nullopt;
  }
  const auto& page = *reinterpret_cast<const status::Page*>(bytes.data());
  const status::About about = page.about;
  // Acquire: whoever sees the magic number sees the fields that were written before it.
  if (page.magic.load(std::memory_order_acquire) != status::magic ||
      page.layout_version != status::layout_version || page.layout_bytes != sizeof(status::Page) ||
      about.size < 1 || about.rank < 0 || about.rank >= about.size) {
    return std::nullopt;
  }
  FlightRecord record{.pid = about.pid,
                      .rank = about.rank,
                      .size = about.size,
                      .hosts = std::clamp(about.hosts, 1, about.size),
                      .host = printable(about.host),
                      .job = printable(about.job),
                      .failure = {},
                      .waiting_threads = page.waiting_threads.load(std::memory_order_relaxed),
                      .waited = seconds(page.waited_ns.load(std::memory_order_relaxed)),
                      .started = seconds(about.started_ns),
                      .totals = read_totals(page.totals),
                      .taken = now,
                      .unix_offset = seconds(about.started_unix_ns) - seconds(about.started_ns),
                      .communicators = {},
                      .unlisted = page.unlisted.load(std::memory_order_relaxed)};
  if (const auto failure = page.failure.read(); failure && failure->failed != 0) {
    record.failure = printable(failure->text);
  }
  // Only places that were ever in use are read: reading the others would take memory for pages that
  // nobody has touched.
  const std::uint64_t used = std::min<std::uint64_t>(page.used.load(std::memory_order_relaxed),
                                                     status::Page::most_communicators);
  for (std::uint64_t place = 0; place < used; ++place) {
    if (auto one = read_communicator(page.communicators[place], about.size)) {
      record.communicators.push_back(std::move(*one));
    }
  }
  return record;
}

ShownRanks::ShownRanks(pid_t pid) : pid_(pid), pages_(status::pages_of(pid)) {}

std::vector<FlightRecord> ShownRanks::read() const {
  std::vector<FlightRecord> records;
  for (const status::Reader& page : pages_) {
    auto record = read_flight_record(page.bytes(), now_seconds());
    need(record.has_value(), "process ", pid_,
         " shows its status in another layout; use the sprat command of its version");
    records.push_back(std::move(*record));
  }
  std::ranges::sort(records, {}, &FlightRecord::rank);
  return records;
}

std::vector<FlightRecord> flight_records_of(pid_t pid) { return ShownRanks(pid).read(); }

std::vector<pid_t> processes_with_flight_records() { return status::processes_with_pages(); }

}  // namespace sprat::collectives
