#include "comm/refuge.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/control_proof.hpp"
#include "comm/control_server.hpp"
#include "comm/hub_search.hpp"
#include "comm/job_terms.hpp"
#include "comm/knocking.hpp"
#include "comm/rank_list.hpp"
#include "comm/tcp_uplink.hpp"

namespace sprat::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// Who has not come is looked for again after this time.
constexpr auto look_again = 100ms;

/// Where the leader listens: the same place however often one looks.
class LeaderPlace final : public MeetingPlace {
 public:
  LeaderPlace(int size, Contact contact) : size_(size), contact_(std::move(contact)) {}
  std::string name() const override { return "the refuge of the lowest rank that is left"; }
  int size() const override { return size_; }
  std::vector<int> ports() const override { return {}; }
  std::string token() const override { return contact_.token; }
  Trust trust() const override { return Trust::proof; }
  void publish(int) override {}
  Found look_up(Clock::time_point) override {
    if (somebody_listens(contact_.doors)) return {contact_, ""};
    throw Error(ErrorCode::lost_peer, "nobody listens there any more");
  }

 private:
  const int size_;
  const Contact contact_;
};

/// While it lives, a hub of survivors is told which of those that it waits for are dead.
class Searcher final {
 public:
  Searcher(ControlLoop& loop, std::shared_ptr<ControlServer> server,
           const std::vector<std::vector<Door>>& doors)
      : thread_([this, &loop, server = std::move(server), &doors](std::stop_token stop) {
          search(loop, *server, doors, stop);
        }) {}

 private:
  void search(ControlLoop& loop, ControlServer& server, const std::vector<std::vector<Door>>& doors,
              const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      std::vector<int> awaited;
      loop.run([&] { awaited = server.awaited(); });
      for (const int rank : awaited) {
        if (stop.stop_requested()) return;
        // After the renumbering nobody is awaited, so `rank` still means what it meant.
        if (!somebody_listens(doors[rank])) loop.run([&] { server.excuse(rank); });
      }
      pause_.wait_for(lock, stop, look_again, [] { return false; });
    }
  }

  std::mutex mutex_;
  std::condition_variable_any pause_;
  std::jthread thread_;  ///< Last: it uses the others.
};

}  // namespace

std::shared_ptr<Refuge> Refuge::open(const Config& config) {
  boost::asio::io_context io;
  std::optional<Listening> listening;
  for (const int port : free_ports(config)) {
    if ((listening = listen_on(io, port))) break;
  }
  need(listening.has_value(), "every port of SPRAT_PORTS=", config.ports.first, "-",
       config.ports.last,
       " is taken on this host; a rank needs one to be found after a failure: see "
       "who has them with ss -ltnp, or set a wider range on every rank");
  std::shared_ptr<Refuge> refuge(new Refuge);
  refuge->terms_ = job_terms(config);
  refuge->descriptor_ = listening->acceptor.release();
  refuge->token_ = random_token();
  refuge->doors_ = doors_of_this_host(config, listening->port);
  return refuge;
}

Refuge::Refuge() = default;

Refuge::~Refuge() {
  if (mark_.here()) close(descriptor_);
}

void Refuge::settle(int rank, std::vector<std::vector<Door>> doors, std::string token) {
  number_ = rank;
  all_doors_ = std::move(doors);
  token_ = std::move(token);
  testimony_.members.resize(all_doors_.size());
  for (std::size_t i = 0; i < all_doors_.size(); ++i) {
    testimony_.members[i] = static_cast<int>(i);
  }
}

Hello Refuge::hello() const { return {number_, static_cast<int>(all_doors_.size()), terms_}; }

/// The lowest rank that may be alive.
int Refuge::leader(Time deadline) {
  for (const int rank : testimony_.members) {
    if (rank == number_) return rank;
    if (dead_.contains(rank)) continue;
    if (somebody_listens(all_doors_[rank])) return rank;
    need(Clock::now() < deadline, "no survivor was found in time");
    dead_.insert(rank);
  }
  throw Error(ErrorCode::lost_peer, "the others went on without this rank", number_);
}

Refuge::Gathered Refuge::gather(int at_least, Time deadline) {
  for (;;) {
    const int leads = leader(deadline);
    try {
      Meeting meeting = leads == number_ ? lead(deadline) : follow(leads, deadline);
      std::vector<int> numbers = survivors(meeting.testimonies);
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
      if (error.code() != ErrorCode::lost_peer || error.rank() == number_) throw;
      log().info("shrinking without its leader, rank {}: {}", leads, error.what());
    }
    need(Clock::now() < deadline, "the ranks that are left did not meet in time");
  }
}

Refuge::Meeting Refuge::lead(Time deadline) const {
  auto loop = std::make_shared<ControlLoop>();
  const int descriptor = open_here_only([this] { return fcntl(descriptor_, F_DUPFD_CLOEXEC, 0); });
  need(descriptor >= 0, "cannot listen: ", std::strerror(errno));
  auto [mine, hubs] = socket_pair(loop->io());
  auto server = ControlServer::start(*loop, adopt_listening(loop->io(), descriptor),
                                     {token_, Trust::proof}, hello(), Hub::Quorum::survivors);
  loop->run([&server, &hubs = hubs, this] { server->adopt(std::move(hubs), hello()); });
  auto member = make_member(hello(), loop, std::move(mine), server, Hub::Quorum::survivors);
  const Searcher searcher(*loop, server, all_doors_);
  auto testimonies = member->exchange(encode(testimony_), "shrinking", deadline);
  return {std::move(member), std::move(testimonies)};
}

Refuge::Meeting Refuge::follow(int leader, Time deadline) const {
  auto loop = std::make_shared<ControlLoop>();
  LeaderPlace place(hello().size, {all_doors_[leader], token_});
  auto member = make_member(hello(), loop, find_hub(loop->io(), place, hello(), deadline), nullptr,
                            Hub::Quorum::survivors);
  auto testimonies = member->exchange(encode(testimony_), "shrinking", deadline);
  return {std::move(member), std::move(testimonies)};
}

void Refuge::commit(std::vector<int> numbers) {
  ++testimony_.generation;
  testimony_.members = std::move(numbers);
}

}  // namespace sprat::comm
