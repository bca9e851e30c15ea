// Ranks that join, exchange, and tell each other, over each kind of wire.
#include "comm/rendezvous.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/write.hpp>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "comm/control_proof.hpp"
#include "comm/control_socket.hpp"
#include "comm/meeting_place.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using Kind = ControlMessage::Kind;
using Ranks = std::vector<std::unique_ptr<Rendezvous>>;

Blob blob(std::string_view text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

Clock::time_point soon() { return Clock::now() + 20s; }

/// What a rank hears, to be waited for.
class Ear {
 public:
  explicit Ear(Rendezvous& rank) {
    rank.listen([this](const ControlMessage& message) {
      std::lock_guard lock(mutex_);
      heard_.push_back(message);
      changed_.notify_all();
    });
  }
  ControlMessage next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 20s, [this] { return !heard_.empty(); })) {
      ADD_FAILURE() << "nothing was heard";
      return {};
    }
    ControlMessage message = std::move(heard_.front());
    heard_.pop_front();
    return message;
  }
  bool silent() {
    std::lock_guard lock(mutex_);
    return heard_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ControlMessage> heard_;
};

/// A way to open a job of several ranks, all in this process.
struct Wire {
  const char* name;
  Ranks (*open)(int size);
};

class EveryWire : public ::testing::TestWithParam<Wire> {};

/// Runs `body` for each rank, each on a thread of its own.
void on_each(Ranks& ranks, const std::function<void(Rendezvous&)>& body) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    if (rank) threads.emplace_back([&] { body(*rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Ends every rank, together, as the ranks of a job do.
void leave(Ranks& ranks) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&] { rank.reset(); });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(EveryWire, exchanges_every_ranks_blob) {
  for (const int size : {1, 2, 5}) {
    Ranks ranks = GetParam().open(size);
    on_each(ranks, [&](Rendezvous& rank) {
      EXPECT_EQ(rank.size(), size);
      for (int round = 0; round < 5; ++round) {
        const auto all =
            rank.exchange(blob(std::to_string(100 * round + rank.rank())), "meeting", soon());
        ASSERT_EQ(static_cast<int>(all.size()), size);
        for (int other = 0; other < size; ++other) {
          EXPECT_EQ(all[other], blob(std::to_string(100 * round + other))) << "rank " << other;
        }
      }
    });
    leave(ranks);
  }
}

TEST_P(EveryWire, exchanges_megabytes) {
  Ranks ranks = GetParam().open(2);
  on_each(ranks, [&](Rendezvous& rank) {
    const Blob mine(2 << 20, static_cast<std::byte>(rank.rank() + 1));
    const auto all = rank.exchange(mine, "meeting", soon());
    ASSERT_EQ(all.size(), 2u);
    for (int other = 0; other < 2; ++other) {
      EXPECT_EQ(all[other], Blob(2 << 20, static_cast<std::byte>(other + 1)));
    }
  });
  leave(ranks);
}

TEST_P(EveryWire, names_who_did_not_come_at_the_deadline) {
  Ranks ranks = GetParam().open(3);
  on_each(ranks, [&](Rendezvous& rank) {
    if (rank.rank() == 1) return;
    try {
      rank.exchange({}, "mapping memory", Clock::now() + 100ms);
      ADD_FAILURE() << "rank " << rank.rank() << " got what rank 1 did not send";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("mapping memory"));
    }
  });
  EXPECT_THROW(ranks[1]->exchange({}, "mapping memory", soon()), Error);
  leave(ranks);
}

TEST_P(EveryWire, relays_a_failure_to_every_other_rank) {
  Ranks ranks = GetParam().open(3);
  Ear ear0(*ranks[0]), ear2(*ranks[2]);
  ControlMessage failure;
  failure.kind = Kind::failed;
  failure.rank = 1;
  failure.code = static_cast<int>(ErrorCode::aborted);
  failure.text = "had enough";
  ranks[1]->tell(failure);
  for (Ear* ear : {&ear0, &ear2}) {
    const ControlMessage heard = ear->next();
    EXPECT_EQ(heard.kind, Kind::failed);
    EXPECT_EQ(heard.rank, 1);
    EXPECT_EQ(heard.code, static_cast<int>(ErrorCode::aborted));
    EXPECT_EQ(heard.text, "had enough");
  }
  leave(ranks);
}

TEST_P(EveryWire, hears_what_came_before_it_listened) {
  Ranks ranks = GetParam().open(2);
  ControlMessage failure;
  failure.kind = Kind::failed;
  failure.rank = 0;
  failure.text = "early";
  ranks[0]->tell(failure);
  try {  // fails once the message is here
    ranks[1]->exchange({}, "meeting", soon());
    ADD_FAILURE() << "exchanged with a rank that failed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("early"));
  }
  Ear ear(*ranks[1]);
  EXPECT_EQ(ear.next().text, "early");
  leave(ranks);
}

TEST_P(EveryWire, says_farewell) {
  Ranks ranks = GetParam().open(3);
  Ear ear0(*ranks[0]), ear1(*ranks[1]);
  ranks[2].reset();
  for (Ear* ear : {&ear0, &ear1}) {
    const ControlMessage heard = ear->next();
    EXPECT_EQ(heard.kind, Kind::farewell);
    EXPECT_EQ(heard.rank, 2);
  }
  leave(ranks);
}

TEST_P(EveryWire, fails_an_exchange_that_a_rank_left_before) {
  Ranks ranks = GetParam().open(3);
  ranks[2].reset();
  on_each(ranks, [](Rendezvous& rank) {
    try {
      rank.exchange({}, "meeting", soon());
      ADD_FAILURE() << "exchanged with a rank that left";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::lost_peer) << error.what();
      EXPECT_EQ(error.rank(), 2);
    }
  });
  leave(ranks);
}

/// Every rank answers queries from its handler; ranks 0 and 1 have called, with these signatures.
void answer_from_handlers(Ranks& ranks, std::vector<const char*> called,
                          std::vector<std::promise<ControlMessage>>& verdicts) {
  for (auto& rank : ranks) {
    rank->listen([&rank = *rank, called, &verdicts](const ControlMessage& message) {
      if (message.kind == Kind::verdict) verdicts[rank.rank()].set_value(message);
      if (message.kind != Kind::query) return;
      ControlMessage answer = message;
      answer.kind = Kind::answer;
      answer.rank = rank.rank();
      const char* mine = called[rank.rank()];
      answer.code = mine == nullptr ? 1 : 0;
      if (mine != nullptr) answer.payload = blob(mine);
      rank.tell(answer);
    });
  }
}

ControlMessage stalled(int rank, std::string_view signature) {
  ControlMessage message;
  message.kind = Kind::stalled;
  message.rank = rank;
  message.comm = 1;
  message.sequence = 9;
  message.payload = blob(signature);
  return message;
}

TEST_P(EveryWire, finds_ranks_that_call_different_things) {
  Ranks ranks = GetParam().open(3);
  std::vector<std::promise<ControlMessage>> verdicts(3);
  answer_from_handlers(ranks, {"sum of 4", "sum of 5", nullptr}, verdicts);
  ranks[0]->tell(stalled(0, "sum of 4"));
  for (auto& promise : verdicts) {
    auto future = promise.get_future();
    ASSERT_EQ(future.wait_for(20s), std::future_status::ready);
    const ControlMessage verdict = future.get();
    EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::mismatch));
    EXPECT_EQ(verdict.text, "rank 0 called sum of 4; rank 1 called sum of 5");
    EXPECT_EQ(verdict.sequence, 9u);
  }
  leave(ranks);
}

TEST_P(EveryWire, finds_ranks_that_have_not_called) {
  Ranks ranks = GetParam().open(3);
  std::vector<std::promise<ControlMessage>> verdicts(3);
  answer_from_handlers(ranks, {"sum of 4", "sum of 4", nullptr}, verdicts);
  ranks[1]->tell(stalled(1, "sum of 4"));
  auto future = verdicts[1].get_future();
  ASSERT_EQ(future.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(decode_ranks(future.get().payload), std::vector<int>{2});
  leave(ranks);
}

/// What each rank's thread came to: a rank, or its error.
struct Joined {
  std::unique_ptr<Rendezvous> rank;
  std::optional<Error> error;
};

/// Joins with each configuration, all at once.
std::vector<Joined> join_all(const std::vector<Config>& configs) {
  std::vector<Joined> joined(configs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        joined[i].rank = open_rendezvous(configs[i]);
      } catch (const Error& error) {
        joined[i].error = error;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return joined;
}

void leave(std::vector<Joined>& joined) {
  Ranks ranks;
  for (Joined& one : joined) ranks.push_back(std::move(one.rank));
  leave(ranks);
}

/// A folder of our own, gone at the end.
class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "sprat-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

std::vector<Config> configs_at(const std::string& rendezvous, int size) {
  std::vector<Config> configs(size);
  for (int rank = 0; rank < size; ++rank) {
    configs[rank].rank = rank;
    configs[rank].size = size;
    configs[rank].rendezvous = rendezvous;
    configs[rank].join_timeout = 20s;
  }
  return configs;
}

Ranks open_at(const std::string& rendezvous, int size) {
  Ranks ranks;
  for (Joined& one : join_all(configs_at(rendezvous, size))) {
    if (one.error) ADD_FAILURE() << one.error->what();
    ranks.push_back(std::move(one.rank));
  }
  return ranks;
}

Ranks open_at_file(int size) {
  const Folder folder;
  Ranks ranks = open_at("file://" + (folder / "job").string(), size);
  EXPECT_TRUE(folder.empty()) << "the file is still there";
  return ranks;
}

/// A port that nobody has now.
int free_port() {
  boost::asio::io_context io;
  return listen_on(io, 0)->port;
}

Ranks open_at_address(int size) {
  return open_at("tcp://127.0.0.1:" + std::to_string(free_port()), size);
}

INSTANTIATE_TEST_SUITE_P(Rendezvous, EveryWire,
                         ::testing::Values(Wire{"in_process", open_rendezvous_in_process},
                                           Wire{"file", open_at_file},
                                           Wire{"tcp", open_at_address}),
                         [](const auto& instance) { return instance.param.name; });

TEST(Joining, waits_for_a_hub_that_comes_last) {
  const Folder folder;
  for (const std::string& where :
       {"file://" + (folder / "job").string(), "tcp://localhost:" + std::to_string(free_port())}) {
    const auto configs = configs_at(where, 3);
    std::vector<Joined> late(1), early(2);
    std::thread others([&] { early = join_all({configs[1], configs[2]}); });
    std::this_thread::sleep_for(50ms);  // not waited for: it only makes the early ranks knock
    late = join_all({configs[0]});
    others.join();
    for (const Joined& one : early) EXPECT_TRUE(one.rank) << one.error->what();
    early.push_back(std::move(late[0]));
    leave(early);
  }
}

TEST(Joining, works_at_an_ipv6_address) {
  auto ranks = open_at("tcp://[::1]:" + std::to_string(free_port()), 2);
  leave(ranks);
}

TEST(Joining, lists_who_came_and_who_did_not) {
  const Folder folder;
  auto configs = configs_at("file://" + (folder / "job").string(), 4);
  for (Config& config : configs) config.join_timeout = 400ms;
  configs.erase(configs.begin() + 2);
  auto joined = join_all(configs);
  for (const Joined& one : joined) {
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code(), ErrorCode::timeout);
    EXPECT_EQ(one.error->rank(), 2);
    EXPECT_THAT(one.error->what(), AllOf(HasSubstr("3 of 4 ranks came within 0."),
                                         HasSubstr("ranks 0, 1, 3"), HasSubstr("missing: rank 2")));
  }
  EXPECT_TRUE(folder.empty());
}

TEST(Joining, says_what_it_met_when_there_is_no_hub) {
  const Folder folder;
  const std::string port = std::to_string(free_port());
  const std::pair<std::string, std::string> cases[] = {
      {"tcp://127.0.0.1:" + port, "127.0.0.1:" + port + ": Connection refused"},
      {"file://" + (folder / "job").string(), "No such file"}};
  for (const auto& [where, what] : cases) {
    auto configs = configs_at(where, 2);
    configs[1].join_timeout = 100ms;
    const auto joined = join_all({configs[1]});
    ASSERT_TRUE(joined[0].error);
    EXPECT_EQ(joined[0].error->code(), ErrorCode::timeout);
    EXPECT_EQ(joined[0].error->rank(), 0);
    EXPECT_THAT(joined[0].error->what(), HasSubstr(what));
  }
}

TEST(Joining, refuses_ranks_that_are_configured_otherwise) {
  auto configs = configs_at("tcp://127.0.0.1:" + std::to_string(free_port()), 3);
  configs[1].timeout = 7s;
  for (const Joined& one : join_all(configs)) {
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code(), ErrorCode::mismatch) << one.error->what();
    EXPECT_EQ(one.error->rank(), 1);
    EXPECT_THAT(one.error->what(), HasSubstr("SPRAT_TIMEOUT: \"1800\" on rank 0, \"7\" on rank 1"));
  }
}

TEST(Joining, refuses_a_second_rank_of_a_number) {
  auto configs = configs_at("tcp://127.0.0.1:" + std::to_string(free_port()), 2);
  auto joined = join_all(configs);
  const auto second = join_all({configs[1]});
  ASSERT_TRUE(second[0].error);
  EXPECT_EQ(second[0].error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(second[0].error->what(), HasSubstr("rank 1 has joined this job already"));
  Ranks ranks;
  for (Joined& one : joined) ranks.push_back(std::move(one.rank));
  on_each(ranks, [](Rendezvous& rank) { rank.exchange({}, "meeting", soon()); });
  leave(ranks);
}

TEST(Joining, keeps_out_who_does_not_know_the_token) {
  auto configs = configs_at("tcp://127.0.0.1:" + std::to_string(free_port()), 2);
  for (Config& config : configs) config.join_timeout = 500ms;
  configs[0].token = "right";
  configs[1].token = "wrong";
  const auto joined = join_all(configs);
  for (const Joined& one : joined) {
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code(), ErrorCode::timeout);
  }
  EXPECT_THAT(joined[0].error->what(), AllOf(HasSubstr("missing: rank 1"), HasSubstr("token")));
  EXPECT_THAT(joined[1].error->what(), HasSubstr("another token"));
}

TEST(Joining, is_not_misled_by_the_file_of_an_earlier_job) {
  const Folder folder;
  boost::asio::io_context io;
  const Listening silent = *listen_on(io, 0);  // answers nothing, like a stranger on an old port
  const Contact stale{{{"127.0.0.1", free_port()}, {"127.0.0.1", silent.port}}, "old token"};
  std::ofstream(folder / "job") << write_contact(stale);
  const auto configs = configs_at("file://" + (folder / "job").string(), 2);
  std::vector<Joined> early(1);
  std::thread other([&] { early = join_all({configs[1]}); });
  auto joined = join_all({configs[0]});
  other.join();
  ASSERT_TRUE(early[0].rank) << early[0].error->what();
  joined.push_back(std::move(early[0]));
  EXPECT_TRUE(folder.empty());
  leave(joined);
}

TEST(Joining, is_not_disturbed_by_strangers) {
  const int port = free_port();
  const auto configs = configs_at("tcp://127.0.0.1:" + std::to_string(port), 2);
  std::vector<Joined> joined(2);
  std::thread hub([&] { joined[0] = std::move(join_all({configs[0]})[0]); });

  boost::asio::io_context io;
  using boost::asio::ip::tcp;
  const tcp::endpoint door(boost::asio::ip::make_address("127.0.0.1"),
                           static_cast<std::uint16_t>(port));
  std::mt19937 random(1);
  std::vector<tcp::socket> strangers;
  for (int i = 0; i < 60; ++i) {
    tcp::socket stranger(io);
    boost::system::error_code error = boost::asio::error::connection_refused;
    for (const auto until = soon(); error && Clock::now() < until;) {
      stranger.close();
      stranger.connect(door, error);
    }
    ASSERT_FALSE(error) << error.message();
    // A third says nothing, a third talks nonsense, a third greets and then talks nonsense.
    std::string words;
    if (i % 3 == 2) words.assign(reinterpret_cast<const char*>(control_magic.data()), magic_bytes);
    for (int length = i % 3 == 0 ? 0 : 200; length > 0; --length) {
      words += static_cast<char>(random() & 0xff);
    }
    boost::asio::write(stranger, boost::asio::buffer(words), error);
    if (i % 2 == 0) strangers.push_back(std::move(stranger));  // the others hang up
  }
  joined[1] = std::move(join_all({configs[1]})[0]);
  hub.join();
  for (const Joined& one : joined) EXPECT_TRUE(one.rank) << one.error->what();
  leave(joined);
}

TEST(Doors, are_read_from_addresses) {
  EXPECT_EQ(parse_door("host:29500", "x"), (Door{"host", 29500}));
  EXPECT_EQ(parse_door("[::1]:1", "x"), (Door{"::1", 1}));
  for (const char* bad : {"", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "::1:80",
                          "[::1]", "[::1]80", "[]:1", "host:-1"}) {
    EXPECT_THROW(parse_door(bad, "x"), Error) << bad;
  }
}

TEST(Contact, comes_back_as_it_was_written) {
  const Contact contact{{{"10.0.0.1", 1}, {"fd00::2", 65535}}, "a token with blanks"};
  const std::string text = write_contact(contact);
  EXPECT_EQ(read_contact(text), contact);
  for (std::size_t length = 0; length + 1 < text.size(); ++length) {
    EXPECT_FALSE(read_contact(text.substr(0, length))) << length;
  }
}

}  // namespace
}  // namespace sprat::comm
