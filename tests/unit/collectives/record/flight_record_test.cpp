// Status pages and flight records: what is written is read, and foreign bytes are not believed.
#include "collectives/record/flight_record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>

#include "collectives/plan/signature.hpp"
#include "comm/status/status_page.hpp"
#include "sprat/error.hpp"
#include "tests/unit/no_files.hpp"

namespace sprat::collectives {
namespace {

namespace status = comm::status;
using State = CallState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

status::About about() {
  status::About made{};
  made.pid = getpid();
  made.rank = 2;
  made.size = 4;
  made.hosts = 3;
  made.started_ns = 4'000'000'000;
  status::put(made.host, "host7");
  status::put(made.job, "42-host7");
  return made;
}

void show(status::Communicator& page, std::uint64_t sequence, status::State state) {
  page.operations[sequence % page.operations_kept].change([&](status::Operation& one) {
    const Signature signature{.count = 1024, .collective = Collective::all_reduce};
    std::memcpy(one.signature, &signature, sizeof signature);
    one.sequence = sequence;
    one.bytes = 4096;
    one.posted_ns = 5'000'000'000;
    one.state = state;
    one.awaited = 2;
    one.late = 1;
    one.awaits[0] = 1;
    one.awaits[1] = 3;
    status::put(one.algorithm, "direct");
  });
  page.posted = sequence + 1;
}

/// A page with one communicator that has one operation, as bytes.
std::vector<std::byte> page_bytes() {
  status::Writer writer(about());
  status::Communicator* page = writer.open(7, "rows", 1, std::vector<int>{1, 2, 3});
  show(*page, 40, status::State::running);
  writer.waited_ns() = 2'500'000'000;
  writer.totals().collectives[static_cast<std::size_t>(Collective::all_gather)].add(100);
  writer.totals().collectives[static_cast<std::size_t>(Collective::all_gather)].add(28);
  writer.totals().receives.add(7);
  const status::Reader reader = writer.read();
  return {reader.bytes().begin(), reader.bytes().end()};
}

TEST(FlightRecord, holds_what_the_page_shows) {
  const auto record = read_flight_record(page_bytes(), 8.5);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->rank, 2);
  EXPECT_EQ(record->size, 4);
  EXPECT_EQ(record->host, "host7");
  EXPECT_EQ(record->job, "42-host7");
  EXPECT_EQ(record->failure, "");
  EXPECT_EQ(record->hosts, 3);
  EXPECT_DOUBLE_EQ(record->started, 4);
  EXPECT_DOUBLE_EQ(record->waited, 2.5);
  ASSERT_EQ(record->totals.size(), 2u);
  EXPECT_EQ(record->totals[0].operation, "all_gather");
  EXPECT_EQ(record->totals[0].calls, 2u);
  EXPECT_EQ(record->totals[0].bytes, 128u);
  EXPECT_EQ(record->totals[1].operation, "recv");
  ASSERT_EQ(record->communicators.size(), 1u);
  const RecordedCommunicator& rows = record->communicators.front();
  EXPECT_EQ(rows.id, 7u);
  EXPECT_EQ(rows.name, "rows");
  EXPECT_EQ(rows.rank, 1);
  EXPECT_THAT(rows.world_ranks, ElementsAre(1, 2, 3));
  ASSERT_EQ(rows.operations.size(), 1u);
  const RecordedOperation& one = rows.operations.front();
  EXPECT_EQ(one.sequence, 40u);
  EXPECT_EQ(one.call, "all_reduce of 1024 f32, sum");
  EXPECT_EQ(one.algorithm, "direct");
  EXPECT_EQ(one.state, State::running);
  EXPECT_DOUBLE_EQ(one.posted, 5.0);
  EXPECT_THAT(one.late, ElementsAre(1));
  EXPECT_THAT(one.waits_for, ElementsAre(3));
}

TEST(FlightRecord, survives_json) {
  FlightRecord record = *read_flight_record(page_bytes(), 8.5);
  record.communicators.front().messages.push_back({.sends = true,
                                                   .peer = 1,
                                                   .tag = 9,
                                                   .bytes = 64,
                                                   .state = State::failed,
                                                   .posted = 6,
                                                   .ended = 7});
  record.failure = "lost rank 1";
  record.unix_offset = 1000;
  const std::string json = to_json(record);
  const FlightRecord again = flight_record_from_json(json);
  EXPECT_EQ(again.communicators.front().operations.front().posted, 1005.0);
  EXPECT_EQ(again.communicators.front().operations.front().ended, 0.0);
  EXPECT_EQ(to_json(again), json);
}

TEST(FlightRecord, tells_what_is_wrong_with_json) {
  for (const char* bad : {"", "[]", "{}", "{\"format\": \"sprat flight record 1\"}",
                          "{\"format\": \"sprat flight record 9\"}", "\xff\xfe"}) {
    EXPECT_THROW(flight_record_from_json(bad), Error) << bad;
  }
  EXPECT_THROW(read_flight_record_file("/nonexistent/x.json"), Error);
}

TEST(FlightRecord, of_bad_json_is_refused_in_plain_words_that_name_the_file) {
  const std::string path = testing::TempDir() + "sprat_record_" + std::to_string(getpid());
  std::ofstream(path) << "{\"format\": ";
  try {
    read_flight_record_file(path);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::StartsWith(path + ": this is no flight record: parse error at line 1"));
  }
  unlink(path.c_str());
}

TEST(FlightRecord, is_none_of_what_is_no_file) {
  const NoFiles none;
  for (const std::string& no_file : none.paths()) {
    EXPECT_THROW(read_flight_record_file(no_file), Error) << no_file;
  }
}

TEST(FlightRecord, is_none_of_a_page_cut_short) {
  const std::vector<std::byte> page = page_bytes();
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{7}, page.size() / 2, sizeof(status::Page) - 1}) {
    EXPECT_FALSE(read_flight_record(std::span(page).first(bytes), 0).has_value()) << bytes;
  }
}

// Only the parts in use, so that the noise meets every field many times.
TEST(FlightRecord, believes_no_byte) {
  std::vector<std::byte> page = page_bytes();
  auto* shown = reinterpret_cast<status::Page*>(page.data());
  shown->used = ~0ull;  // beyond the end, if believed
  std::mt19937_64 random(1);
  const std::size_t from = offsetof(status::Page, failure);
  const std::size_t to = offsetof(status::Page, communicators) + sizeof(status::Communicator);
  int read = 0;
  for (int round = 0; round < 300; ++round) {
    for (int flips = 0; flips < 200; ++flips) {
      page[from + random() % (to - from)] = static_cast<std::byte>(random());
    }
    if (const auto record = read_flight_record(page, 8.5)) {
      for (const auto& one : record->communicators) {
        ++read;
        EXPECT_LT(one.rank, one.size);
        for (const auto& operation : one.operations) {
          EXPECT_LE(operation.late.size() + operation.waits_for.size(), 10u);
        }
      }
      EXPECT_NO_THROW(flight_record_from_json(to_json(*record)));
    }
    if (round % 20 == 0) {
      page = page_bytes();
    }
  }
  EXPECT_GT(read, 0) << "the noise hid every communicator";
}

TEST(StatusPage, an_entry_that_is_being_written_is_left_out) {
  std::vector<std::byte> page = page_bytes();
  auto& entry = reinterpret_cast<status::Page*>(page.data())->communicators[0].operations[8];
  std::uint64_t version = 0;
  std::memcpy(&version, &entry, sizeof version);
  version |= 1;
  std::memcpy(static_cast<void*>(&entry), &version, sizeof version);
  EXPECT_TRUE(read_flight_record(page, 0)->communicators.front().operations.empty());
}

TEST(StatusPage, is_found_by_the_process) {
  const status::Writer writer(about());
  const auto records = flight_records_of(getpid());
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records.front().host, "host7");
  EXPECT_THAT(processes_with_flight_records(), ::testing::Contains(getpid()));
}

TEST(StatusPage, a_closed_communicator_is_gone_and_its_place_is_used_again) {
  status::Writer writer(about());
  const std::vector<int> ranks = {0, 2};
  status::Communicator* first = writer.open(1, "first", 1, ranks);
  show(*first, 3, status::State::done);
  writer.close(first);
  EXPECT_TRUE(read_flight_record(writer.read().bytes(), 0)->communicators.empty());
  EXPECT_EQ(writer.open(2, "second", 1, ranks), first);
  EXPECT_TRUE(
      read_flight_record(writer.read().bytes(), 0)->communicators.front().operations.empty());
}

TEST(StatusPage, counts_the_communicators_that_it_has_no_room_for) {
  status::Writer writer(about());
  for (std::size_t i = 0; i < status::Page::most_communicators; ++i) {
    ASSERT_NE(writer.open(i, "x", 0, std::vector<int>{2}), nullptr);
  }
  EXPECT_EQ(writer.open(9999, "x", 0, std::vector<int>{2}), nullptr);
  EXPECT_EQ(read_flight_record(writer.read().bytes(), 0)->unlisted, 1u);
}

TEST(StatusPage, names_are_cut_and_made_printable) {
  status::Writer writer(about());
  writer.open(1, std::string(100, 'n'), 0, std::vector<int>{2});
  writer.open(2, "a\x1b[2J\xff", 0, std::vector<int>{2});
  writer.fail("lost rank 1\nand more");
  const auto record = read_flight_record(writer.read().bytes(), 0);
  EXPECT_EQ(record->communicators[0].name, std::string(64, 'n'));
  EXPECT_EQ(record->communicators[1].name, "a?[2J?");
  EXPECT_EQ(record->failure, "lost rank 1?and more");
}

}  // namespace
}  // namespace sprat::collectives
