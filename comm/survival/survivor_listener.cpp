#include "comm/survival/survivor_listener.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/descriptors.hpp"
#include "comm/base/log.hpp"
#include "comm/base/rank_list.hpp"
#include "comm/bootstrap/coordinator_search.hpp"
#include "comm/bootstrap/job_terms.hpp"
#include "comm/coordinator/control_server.hpp"
#include "comm/coordinator/tcp_coordinator_client.hpp"
#include "comm/encryption/token_proof.hpp"
#include "comm/survival/port_probe.hpp"

namespace sprat::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// How often those who have not come are looked for again.
constexpr auto look_again = 100ms;

struct Leader {
  int number;  ///< In the job as it first was.
  int rank;    ///< In the job that shrinks.
};

/// Where the leader listens, which does not change. If nobody listens there any more the leader has
/// died, and the search ends instead of going on until the deadline.
class LeaderPlace final : public BootstrapPlace {
 public:
  LeaderPlace(int size, Leader leader, Contact contact)
      : size_(size), leader_(leader), contact_(std::move(contact)) {}
  std::string name() const override {
    return text("the survivor listener of rank ", leader_.number);
  }
  int size() const override { return size_; }
  Server server() const override {
    std::string advice =
        text("Rank ", leader_.number, " is the lowest that is left: has it called shrink()?");
    if (leader_.rank != leader_.number) {
      advice += text(" (Ranks are numbered as the job first had them; it is rank ", leader_.rank,
                     " of those that it has now.)");
    }
    return {leader_.rank, std::move(advice)};
  }
  std::vector<int> ports() const override { return {}; }
  std::string token() const override { return contact_.token; }
  Trust trust() const override { return Trust::proof; }
  void publish(int) override {}
  Found look_up(Clock::time_point) override {
    if (somebody_listens(contact_.addresses)) {
      return {contact_, ""};
    }
    throw Error(ErrorCode::lost_peer, "nobody listens there any more");
  }

 private:
  const int size_;
  const Leader leader_;
  const Contact contact_;
};

/// Nobody accepts for as long as the job goes well, and once the queue is full the system answers
/// no more, as if the process were dead. So who only looks whether somebody listens, and says
/// nothing, is kept out of the queue for as long as it may take to look. A kernel that refuses the
/// option queues them.
void queue_only_who_talks(int descriptor) {
  constexpr int seconds = 10;
  setsockopt(descriptor, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
}

/// Which of `ranks` are alive, in that order.
std::vector<bool> who_listen(const std::vector<int>& ranks, const AddressBook& addresses) {
  std::vector<std::vector<SocketAddress>> asked;
  for (const int rank : ranks) {
    asked.push_back(addresses.of(rank));
  }
  return who_listens(asked);
}

/// Where a rank's host is, whatever the rank's port.
std::vector<std::string> names_of(const std::vector<SocketAddress>& addresses) {
  std::vector<std::string> hosts;
  for (const SocketAddress& address : addresses) {
    hosts.push_back(address.host);
  }
  return hosts;
}

/// While it lives, it tells a coordinator of survivors which of those that it waits for are dead,
/// so that it need not wait for them until the deadline. `dead` are known to be. On a thread of its
/// own, since probing takes up to three seconds and would hold up the control thread.
class Searcher final {
 public:
  Searcher(ControlLoop& loop, std::shared_ptr<ControlServer> server, const AddressBook& addresses,
           const std::set<int>& dead)
      : thread_([this, &loop, server = std::move(server), &addresses, dead](std::stop_token stop) {
          loop.run([&] {
            for (const int rank : dead) {
              server->excuse(rank);
            }
          });
          search(loop, *server, addresses, stop);
        }) {}

 private:
  void search(ControlLoop& loop, ControlServer& server, const AddressBook& addresses,
              const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      std::vector<int> awaited;
      loop.run([&] { awaited = server.awaited(); });
      const std::vector<bool> listens = who_listen(awaited, addresses);
      loop.run([&] {
        for (std::size_t i = 0; i < awaited.size(); ++i) {
          // Numbers may have changed since they were read, but only by the exchange that ends all
          // waiting: a rank that is still awaited means who it meant.
          if (!listens[i]) {
            server.excuse(awaited[i]);
          }
        }
      });
      pause_.wait_for(lock, stop, look_again, [] { return false; });
    }
  }

  std::mutex mutex_;
  std::condition_variable_any pause_;
  std::jthread thread_;  ///< Last: it uses the others.
};

}  // namespace

std::shared_ptr<SurvivorListener> SurvivorListener::open(const Config& config) {
  boost::asio::io_context io;
  std::optional<Listening> listening;
  for (const int port : free_ports(config)) {
    if ((listening = listen_on(io, port))) {
      break;
    }
  }
  need(listening.has_value(), "every port of SPRAT_PORTS=", config.ports.first, "-",
       config.ports.last,
       " is taken on this host; a rank needs one to be found after a failure: see "
       "who has them with ss -ltnp, or set a wider range on every rank");
  std::shared_ptr<SurvivorListener> survivor_listener(new SurvivorListener);
  survivor_listener->terms_ = job_terms(config);
  survivor_listener->encryption_ = encryption_of(config);
  survivor_listener->descriptor_ = listening->acceptor.release();
  queue_only_who_talks(survivor_listener->descriptor_);
  survivor_listener->token_ = random_token();
  survivor_listener->addresses_ = addresses_of_this_host(config, listening->port);
  return survivor_listener;
}

SurvivorListener::SurvivorListener() = default;

SurvivorListener::~SurvivorListener() {
  if (mark_.here()) {
    close(descriptor_);
  }
}

void SurvivorListener::settle(int rank, AddressBook addresses, std::string token) {
  number_ = rank;
  all_addresses_ = std::move(addresses);
  token_ = std::move(token);
  testimony_.members.resize(static_cast<std::size_t>(all_addresses_.size()));
  std::iota(testimony_.members.begin(), testimony_.members.end(), 0);
}

Hello SurvivorListener::hello() const { return {number_, all_addresses_.size(), terms_}; }

/// The lowest rank that may be alive. One rank of each host is asked at the same time as those of
/// the others, and the rest of a host only once one of it is dead, for then the host itself may be
/// down. So a few dead hosts cost a few seconds together; many ranks, three seconds for each group
/// that who_listens() asks at a time.
int SurvivorListener::leader(Time deadline) {
  std::set<int> alive;
  std::set<std::vector<std::string>> suspects;
  for (;;) {
    std::set<std::vector<std::string>> seen;
    std::vector<int> asked;
    for (const int rank : testimony_.members) {
      if (dead_.contains(rank)) {
        continue;
      }
      const bool lowest = seen.empty();
      if (rank == number_ || (lowest && alive.contains(rank))) {
        if (lowest) {
          return rank;
        }
        break;
      }
      const auto host = names_of(all_addresses_.of(rank));
      if ((seen.insert(host).second || suspects.contains(host)) && !alive.contains(rank)) {
        asked.push_back(rank);
      }
    }
    if (seen.empty()) {
      throw Error(ErrorCode::lost_peer, "the others went on without this rank", number_);
    }
    const std::vector<bool> listens = who_listen(asked, all_addresses_);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (listens[i]) {
        alive.insert(asked[i]);
        continue;
      }
      // Each round marks somebody as dead or finds the leader, so rounds are bounded; time is too.
      need(Clock::now() < deadline, "no survivor was found in time");
      dead_.insert(asked[i]);
      suspects.insert(names_of(all_addresses_.of(asked[i])));
    }
  }
}

SurvivorListener::Gathered SurvivorListener::gather(int at_least, Time deadline) {
  for (;;) {
    const int leads = leader(deadline);
    try {
      Assembly meeting = leads == number_ ? lead(deadline) : follow(leads, deadline);
      std::vector<int> numbers = survivors(meeting.testimonies);
      // This rank slept through an earlier shrink: the latest generation does not count it as a
      // member.
      if (std::ranges::count(numbers, number_) == 0) {
        throw Error(ErrorCode::lost_peer,
                    text("the others went on without rank ", number_, ", which was not there when ",
                         "the job shrank before"),
                    number_);
      }
      need(static_cast<int>(numbers.size()) >= at_least, "only ", ranks_text(numbers), " of ",
           testimony_.members.size(), " ranks are left; at least ", at_least, " are asked for");
      return {std::move(meeting.rendezvous), std::move(numbers)};
    } catch (const Error& error) {
      // A leader, or anyone else, that died meanwhile is a reason to begin again without it. That
      // the others went on without this rank is not.
      if (error.code() != ErrorCode::lost_peer || error.rank() == number_) {
        throw;
      }
      log().info("shrinking without its leader, rank {}: {}", leads, error.what());
    }
    need(Clock::now() < deadline, "the ranks that are left did not meet in time");
  }
}

/// The coordinator of a job that has shrunk goes on to accept, to tell ranks that come late that
/// the others went on. The next one accepts on the same socket, and only one of them may: which of
/// two gets a connection is chance.
void SurvivorListener::stop_leading() {
  if (const auto loop = led_by_.lock()) {
    loop->run([this] {
      if (const auto server = led_.lock()) {
        server->stop_accepting();
      }
    });
  }
}

/// For a connection of each member that may come, beside all those of the job that has failed, and
/// for looking after them. A warning and no error: who is dead is not known yet, and those who live
/// may find room all the same.
void SurvivorListener::make_room() const {
  const auto may_come = std::ranges::count_if(
      testimony_.members, [this](int rank) { return rank != number_ && !dead_.contains(rank); });
  if (!make_room_for_descriptors(static_cast<std::size_t>(may_come) + most_probed_at_once)) {
    log().warn(
        "rank {} leads the ranks that shrink the job and needs a connection to each of {}, but no "
        "more than {} files may be open in its process; who finds no room is left behind. Raise "
        "the hard limit on its host (see ulimit -n; docker run --ulimit nofile=65536)",
        number_, may_come, most_descriptors());
  }
}

SurvivorListener::Assembly SurvivorListener::lead(Time deadline) {
  stop_leading();
  make_room();
  auto loop = std::make_shared<ControlLoop>();
  // A copy: the server closes what it listens on when it ends, and the next shrink needs the
  // socket.
  const int descriptor = open_here_only([this] { return fcntl(descriptor_, F_DUPFD_CLOEXEC, 0); });
  need(descriptor >= 0, "cannot listen: ", std::strerror(errno));
  auto [mine, coordinators] = socket_pair(loop->io());
  auto server = ControlServer::start(*loop, adopt_listening(loop->io(), descriptor),
                                     {token_, Trust::proof, encryption_}, hello(),
                                     Coordinator::Quorum::survivors);
  led_ = server;
  led_by_ = loop;
  loop->run([&server, &coordinators = coordinators, this] {
    server->adopt(std::move(coordinators), hello());
  });
  auto member = make_member(hello(), loop, std::move(mine), server, Coordinator::Quorum::survivors);
  const Searcher searcher(*loop, server, all_addresses_, dead_);
  auto testimonies = member->exchange(encode(testimony_), "shrinking", deadline);
  return {std::move(member), std::move(testimonies)};
}

SurvivorListener::Assembly SurvivorListener::follow(int leader, Time deadline) const {
  auto loop = std::make_shared<ControlLoop>();
  const auto rank = std::ranges::lower_bound(members(), leader) - members().begin();
  LeaderPlace place(hello().size, {.number = leader, .rank = static_cast<int>(rank)},
                    {all_addresses_.of(leader), token_});
  Entrance entrance = find_coordinator(loop->io(), place, hello(), deadline, encryption_);
  auto member =
      make_member(hello(), loop, std::move(entrance.line), nullptr, Coordinator::Quorum::survivors);
  auto testimonies = member->exchange(encode(testimony_), "shrinking", deadline);
  return {std::move(member), std::move(testimonies)};
}

void SurvivorListener::commit(std::vector<int> numbers) {
  ++testimony_.generation;
  testimony_.members = std::move(numbers);
}

}  // namespace sprat::comm
