// How ranks come together, and what keeps them from it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <fstream>
#include <future>
#include <random>

#include "comm/bootstrap/bootstrap_place.hpp"
#include "comm/bootstrap/coordinator_search.hpp"
#include "comm/bootstrap/job_terms.hpp"
#include "comm/coordinator/control_greeting.hpp"
#include "comm/encryption/token_proof.hpp"
#include "tests/unit/comm/bootstrap/rendezvous_ranks.hpp"
#include "tests/unit/no_files.hpp"

namespace sprat::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Lets one connection in that then gets no answer, like a stranger on a port that a job had
/// before.
class Stranger {
 public:
  explicit Stranger(int port) : listening_(*listen_on(io_, port)) {}
  int port() const { return listening_.port; }
  void wait_for_a_knock() { listening_.acceptor.wait(boost::asio::socket_base::wait_read); }

 private:
  boost::asio::io_context io_;
  Listening listening_;
};

TEST(Joining, waits_for_a_coordinator_that_comes_last) {
  std::optional<Stranger> stranger(0);
  const auto configs = configs_at("tcp://127.0.0.1:" + std::to_string(stranger->port()), 3);
  std::vector<Joined> early;
  std::thread others([&] { early = join_all({configs[1], configs[2]}); });
  stranger->wait_for_a_knock();
  stranger.reset();
  auto joined = join_all({configs[0]});
  others.join();
  for (Joined& one : early) {
    joined.push_back(std::move(one));
  }
  for (const Joined& one : joined) {
    EXPECT_TRUE(one.rank) << one.error->what();
  }
  leave(joined);
}

TEST(Joining, works_at_an_ipv6_address) {
  auto ranks = open_at("tcp://[::1]:" + std::to_string(free_port()), 2);
  leave(ranks);
}

TEST(Joining, listens_within_the_range_of_ports) {
  const Folder folder;
  // Two ports beside each other: what lies after a free one is nearly always free as well.
  std::optional<Stranger> taken, also_taken;
  while (!also_taken) {
    taken.emplace(0);
    boost::asio::io_context io;
    if (listen_on(io, taken->port() + 1)) {
      also_taken.emplace(taken->port() + 1);
    }
  }
  auto configs = configs_at("file://" + (folder / "job").string(), 2);
  for (Config& config : configs) {
    config.ports = {taken->port(), taken->port() + 8};
  }
  auto joined = join_all(configs);
  for (const Joined& one : joined) {
    ASSERT_TRUE(one.rank) << one.error->what();
  }
  leave(joined);

  for (Config& config : configs) {
    config.ports = {taken->port(), also_taken->port()};
    config.join_timeout = 100ms;
  }
  joined = join_all({configs[0]});
  ASSERT_TRUE(joined[0].error);
  EXPECT_EQ(joined[0].error->code(), ErrorCode::unavailable);
  EXPECT_THAT(joined[0].error->what(),
              HasSubstr("every port from " + std::to_string(taken->port()) + " to " +
                        std::to_string(also_taken->port())));
}

TEST(Joining, refuses_an_address_outside_the_range_of_ports) {
  auto configs = configs_at("tcp://127.0.0.1:29500", 2);
  configs[0].ports = {30000, 30009};
  const auto joined = join_all({configs[0]});
  ASSERT_TRUE(joined[0].error);
  EXPECT_EQ(joined[0].error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(joined[0].error->what(), HasSubstr("outside SPRAT_PORTS=30000-30009"));
}

TEST(Joining, lists_who_came_and_who_did_not) {
  const Folder folder;
  auto configs = configs_at("file://" + (folder / "job").string(), 4);
  for (Config& config : configs) {
    config.join_timeout = 2s;
  }
  configs.erase(configs.begin() + 2);
  auto joined = join_all(configs);
  for (const Joined& one : joined) {
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code(), ErrorCode::timeout);
    EXPECT_EQ(one.error->rank(), 2);
    EXPECT_THAT(one.error->what(), AllOf(StartsWith("joining: 3 of 4 ranks came within the "),
                                         HasSubstr("ranks 0, 1, 3"), HasSubstr("missing: rank 2")));
  }
  EXPECT_TRUE(folder.empty());
}

TEST(Joining, says_what_it_met_when_there_is_no_coordinator) {
  const Folder folder;
  const std::string port = std::to_string(free_port());
  const std::pair<std::string, std::string> cases[] = {
      {"tcp://127.0.0.1:" + port, "127.0.0.1:" + port + ": Connection refused"},
      {"file://" + (folder / "job").string(), "No such file"}};
  for (const auto& [where, what] : cases) {
    auto configs = configs_at(where, 2);
    configs[1].join_timeout = 1s;
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
  std::vector<Joined> joined;
  std::thread coordinator([&] { joined = join_all({configs[0]}); });
  auto others = join_all({configs[1]});
  others.push_back(std::move(join_all({configs[2]})[0]));  // comes when the job has failed
  coordinator.join();
  others.push_back(std::move(joined[0]));
  for (const Joined& one : others) {
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code(), ErrorCode::mismatch) << one.error->what();
    EXPECT_EQ(one.error->rank(), 1);
    EXPECT_THAT(one.error->what(), HasSubstr("SPRAT_TIMEOUT: \"1800\" on rank 0, \"7\" on rank 1"));
  }
}

TEST(Joining, compares_rules_that_are_longer_than_a_hello_may_be) {
  const std::string rules(2 * max_hello_bytes, ';');
  for (const std::string other : {rules, rules + ";"}) {
    auto configs = configs_at("tcp://127.0.0.1:" + std::to_string(free_port()), 2);
    configs[0].algorithm = rules;
    configs[1].algorithm = other;
    for (Config& config : configs) {
      config.join_timeout = 5s;
    }
    auto joined = join_all(configs);
    for (const Joined& one : joined) {
      EXPECT_EQ(one.error.has_value(), other != rules) << (one.error ? one.error->what() : "");
      if (one.error) {
        EXPECT_EQ(one.error->code(), ErrorCode::mismatch) << one.error->what();
        EXPECT_THAT(one.error->what(), AllOf(HasSubstr("SPRAT_ALGORITHM: \";;;;"),
                                             HasSubstr(";... (131072 bytes, hash "),
                                             HasSubstr(";... (131073 bytes, hash ")));
      }
    }
    leave(joined);
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
  for (Joined& one : joined) {
    ranks.push_back(std::move(one.rank));
  }
  on_each(ranks, [](Rendezvous& rank) { rank.exchange({}, "meeting", soon()); });
  leave(ranks);
}

TEST(Joining, keeps_out_who_does_not_know_the_token) {
  auto configs = configs_at("tcp://127.0.0.1:" + std::to_string(free_port()), 2);
  for (Config& config : configs) {
    config.join_timeout = 1s;
  }
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
  Stranger stranger(0);
  const Contact stale{{{"127.0.0.1", free_port()}, {"127.0.0.1", stranger.port()}}, "old token"};
  std::ofstream(folder / "job") << write_contact(stale);
  const auto configs = configs_at("file://" + (folder / "job").string(), 2);
  std::vector<Joined> early;
  std::thread other([&] { early = join_all({configs[1]}); });
  stranger.wait_for_a_knock();
  auto joined = join_all({configs[0]});
  other.join();
  joined.push_back(std::move(early[0]));
  for (const Joined& one : joined) {
    EXPECT_TRUE(one.rank) << one.error->what();
  }
  EXPECT_TRUE(folder.empty());
  leave(joined);
}

TEST(Joining, does_not_wait_for_who_writes_to_a_pipe_at_the_files_path) {
  const Folder folder;
  const std::string path = folder / "job";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  auto configs = configs_at("file://" + path, 2);
  std::promise<std::vector<Joined>> joined;
  std::future<std::vector<Joined>> future = joined.get_future();
  std::thread rank([&] { joined.set_value(join_all({configs[1]})); });
  const bool waits = future.wait_for(5s) == std::future_status::timeout;
  EXPECT_FALSE(waits);
  if (waits) {  // the writer that it waits for lets the thread end
    close(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  }
  rank.join();
  const std::vector<Joined> ranks = future.get();
  ASSERT_TRUE(ranks[0].error);
  EXPECT_THAT(ranks[0].error->what(), HasSubstr("is not a file"));
}

TEST(Joining, waits_for_no_rules_that_are_no_file) {
  const NoFiles none;
  for (const std::string& path : none.paths()) {
    Config config;
    config.tuning = path;
    EXPECT_EQ(job_terms(config).back(), (Term{"content of SPRAT_TUNING", ""})) << path;
  }
}

TEST(Joining, leaves_a_pipe_alone_that_was_put_in_its_files_place) {
  const Folder folder;
  const std::string path = folder / "job";
  Config config = configs_at("file://" + path, 2)[0];
  auto place = bootstrap_at_file(config, {.rank = 0, .size = 2, .rendezvous = config.rendezvous});
  place->publish(1);
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::promise<void> ended;
  std::thread end([&] {
    place.reset();
    ended.set_value();
  });
  const bool waits = ended.get_future().wait_for(5s) == std::future_status::timeout;
  EXPECT_FALSE(waits);
  if (waits) {
    close(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  }
  end.join();
  EXPECT_FALSE(folder.empty());
}

TEST(Joining, names_a_rank_that_dies_meanwhile_at_once) {
  const auto configs = configs_at("tcp://127.0.0.1:" + std::to_string(free_port()), 4);
  std::vector<Joined> joined;
  std::thread others([&] { joined = join_all({configs[0], configs[2]}); });
  {
    boost::asio::io_context io;
    const Launch launch{.by = "SPRAT_*", .rank = 1, .size = 4, .rendezvous = configs[1].rendezvous};
    const auto place = bootstrap_at_address(configs[1], launch);
    find_coordinator(io, *place, {1, 4, job_terms(configs[1])},
                     soon());  // joins, and is closed at once
  }
  others.join();
  for (const Joined& one : joined) {
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code(), ErrorCode::lost_peer) << one.error->what();
    EXPECT_EQ(one.error->rank(), 1);
    EXPECT_THAT(one.error->what(), HasSubstr("lost rank 1: its connection ended"));
  }
}

// A rank that is killed in the midst of joining, as far as those who wait for it can know of it.
TEST(Joining, says_where_a_rank_was_that_went_before_it_had_said_which_one_it_is) {
  const int port = free_port();
  auto configs = configs_at("tcp://127.0.0.1:" + std::to_string(port), 2);
  configs[0].token = "right";
  configs[0].join_timeout = 1500ms;
  Joined joined;
  std::thread coordinator([&] { joined = std::move(join_all({configs[0]})[0]); });
  boost::asio::io_context io;
  using boost::asio::ip::tcp;
  tcp::socket rank(io);
  boost::system::error_code error = boost::asio::error::connection_refused;
  for (const auto until = soon(); error && Clock::now() < until;) {
    rank.close();
    rank.connect({boost::asio::ip::make_address("127.0.0.1"), static_cast<std::uint16_t>(port)},
                 error);
  }
  ASSERT_FALSE(error) << error.message();
  const std::string here = endpoint_text(rank.local_endpoint());
  const Greeting greeting;
  boost::asio::write(
      rank, std::array{boost::asio::buffer(greeting.magic), boost::asio::buffer(greeting.nonce)});
  CoordinatorGreeting answer;
  boost::asio::read(rank, std::array<boost::asio::mutable_buffer, 3>{
                              boost::asio::buffer(answer.magic), boost::asio::buffer(answer.nonce),
                              boost::asio::buffer(answer.proof)});
  boost::asio::write(rank,
                     boost::asio::buffer(prove("right", Side::rank, answer.nonce, greeting.nonce)));
  rank.close();
  coordinator.join();
  ASSERT_TRUE(joined.error);
  EXPECT_EQ(joined.error->code(), ErrorCode::timeout);
  EXPECT_THAT(joined.error->what(), AllOf(HasSubstr("missing: rank 1"),
                                          HasSubstr("a rank at " + here +
                                                    " went before it had said which one it is "
                                                    "(its connection ended)")));
}

constexpr const char* secret = "a token of sixteen and more";

std::vector<Config> encrypted_at(const std::string& rendezvous, int size) {
  auto configs = configs_at(rendezvous, size);
  for (Config& config : configs) {
    config.token = secret;
    config.encrypt = true;
  }
  return configs;
}

// Messages of many records go in both directions at a time.
TEST(Joining, works_encrypted) {
  auto joined = join_all(encrypted_at("tcp://127.0.0.1:" + std::to_string(free_port()), 4));
  Ranks ranks;
  for (Joined& one : joined) {
    ASSERT_TRUE(one.rank) << one.error->what();
    ranks.push_back(std::move(one.rank));
  }
  on_each(ranks, [](Rendezvous& rank) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{300'000}}) {
      const Blob mine(bytes, static_cast<std::byte>(rank.rank()));
      const auto told = rank.exchange(mine, "telling", soon());
      for (int from = 0; from < rank.size(); ++from) {
        EXPECT_TRUE(told[from] == Blob(bytes, static_cast<std::byte>(from))) << from;
      }
    }
  });
  leave(ranks);
}

// Each row: what rank 1 does differently, what its error says, and what rank 0's does.
TEST(Joining, encrypted_refuses_who_is_not_by_a_sentence_for_both) {
  struct Case {
    const char* what;
    void (*change)(std::vector<Config>& configs);
    const char* to_rank_1;
    const char* to_rank_0;
  };
  const Case cases[] = {
      {"plain among encrypted", [](auto& configs) { configs[1].encrypt = false; },
       "a hub answers that wants encryption; set SPRAT_ENCRYPT=1 on every rank",
       "does not encrypt, as SPRAT_ENCRYPT=1 asks here; set it on every rank"},
      {"encrypted among plain", [](auto& configs) { configs[0].encrypt = false; },
       "what answers does not encrypt; set SPRAT_ENCRYPT=1 on every rank",
       "encrypts, as SPRAT_ENCRYPT=1 asks there and not here; set it on every rank or on none"},
      {"another token", [](auto& configs) { configs[1].token = "a token of another job"; },
       "a hub of another job, or with another token, answers", "has another token or job"},
  };
  // All at a time, since each of them lasts until its deadline.
  std::vector<Config> all;
  for (const Case& one : cases) {
    auto configs = encrypted_at("tcp://127.0.0.1:" + std::to_string(free_port()), 2);
    one.change(configs);
    for (Config& config : configs) {
      config.join_timeout = 1500ms;
      all.push_back(std::move(config));
    }
  }
  const auto joined = join_all(all);
  for (std::size_t at = 0; at < std::size(cases); ++at) {
    const Case& one = cases[at];
    const auto &first = joined[2 * at].error, &second = joined[2 * at + 1].error;
    ASSERT_TRUE(first && second) << one.what;
    EXPECT_THAT(first->what(), HasSubstr(one.to_rank_0)) << one.what;
    EXPECT_THAT(second->what(), HasSubstr(one.to_rank_1)) << one.what;
    EXPECT_EQ(first->code(), ErrorCode::timeout);
    EXPECT_EQ(second->code(), ErrorCode::timeout);
  }
}

TEST(Joining, encrypted_needs_a_secret) {
  auto configs = encrypted_at("tcp://127.0.0.1:" + std::to_string(free_port()), 2);
  configs[0].token = configs[1].token = "";
  for (const Joined& one : join_all(configs)) {
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code(), ErrorCode::invalid_argument);
    EXPECT_THAT(one.error->what(), HasSubstr("there is no SPRAT_TOKEN"));
  }
}

TEST(Joining, is_not_disturbed_by_strangers) {
  const int port = free_port();
  const auto configs = configs_at("tcp://127.0.0.1:" + std::to_string(port), 2);
  std::vector<Joined> joined(2);
  std::thread coordinator([&] { joined[0] = std::move(join_all({configs[0]})[0]); });

  boost::asio::io_context io;
  using boost::asio::ip::tcp;
  const tcp::endpoint address(boost::asio::ip::make_address("127.0.0.1"),
                              static_cast<std::uint16_t>(port));
  std::mt19937 random(1);
  std::vector<tcp::socket> strangers;
  for (int i = 0; i < 60; ++i) {
    tcp::socket stranger(io);
    boost::system::error_code error = boost::asio::error::connection_refused;
    for (const auto until = soon(); error && Clock::now() < until;) {
      stranger.close();
      stranger.connect(address, error);
    }
    ASSERT_FALSE(error) << error.message();
    // A third says nothing, a third talks nonsense, a third greets and then talks nonsense.
    std::string words;
    if (i % 3 == 2) {
      words.assign(reinterpret_cast<const char*>(control_magic.data()), magic_bytes);
    }
    for (int length = i % 3 == 0 ? 0 : 200; length > 0; --length) {
      words += static_cast<char>(random() & 0xff);
    }
    boost::asio::write(stranger, boost::asio::buffer(words), error);
    if (i % 2 == 0) {
      strangers.push_back(std::move(stranger));  // the others hang up
    }
  }
  joined[1] = std::move(join_all({configs[1]})[0]);
  coordinator.join();
  for (const Joined& one : joined) {
    EXPECT_TRUE(one.rank) << one.error->what();
  }
  leave(joined);
}

TEST(SocketAddresses, are_read_from_addresses) {
  EXPECT_EQ(parse_address("host:29500", "x"), (SocketAddress{"host", 29500}));
  EXPECT_EQ(parse_address("[::1]:1", "x"), (SocketAddress{"::1", 1}));
  for (const char* bad : {"", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "::1:80",
                          "[::1]", "[::1]80", "[]:1", "host:-1"}) {
    EXPECT_THROW(parse_address(bad, "x"), Error) << bad;
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
