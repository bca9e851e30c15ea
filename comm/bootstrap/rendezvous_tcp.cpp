// A job whose ranks are processes: each has a TCP connection to the coordinator beside rank 0, and
// keeps it.
#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/config.hpp"
#include "comm/base/descriptors.hpp"
#include "comm/base/log.hpp"
#include "comm/bootstrap/bootstrap_place.hpp"
#include "comm/bootstrap/coordinator_search.hpp"
#include "comm/bootstrap/job_terms.hpp"
#include "comm/coordinator/control_server.hpp"
#include "comm/coordinator/rendezvous_member.hpp"
#include "comm/coordinator/tcp_coordinator_client.hpp"

namespace sprat::comm {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// How long rank 0 tries to listen: an earlier job may still be leaving the port.
constexpr auto port_patience = 5000ms;

Listening listen_at(asio::io_context& io, const BootstrapPlace& place, Clock::time_point deadline) {
  const auto give_up = std::min(deadline, Clock::now() + port_patience);
  const std::vector<int> ports = place.ports();
  for (;;) {
    for (const int port : ports) {
      if (auto listening = listen_on(io, port)) {
        return std::move(*listening);
      }
    }
    need(Clock::now() < give_up || ports.size() == 1, "rank 0 cannot listen at ", place.name(),
         ": every port from ", ports.front(), " to ", ports.back(),
         " is taken on this host (ss -ltnp shows by whom); set another SPRAT_PORTS on every rank");
    need(Clock::now() < give_up, "rank 0 cannot listen at ", place.name(),
         ": another process listens there; end it, or choose another port");
    asio::steady_timer(io, 100ms).wait();
  }
}

/// A rank on its way in.
struct Entrant {
  Hello hello;
  int first_newcomer;  ///< Of rank 0's job; its size: there are none.
  Clock::time_point deadline;
  Encryption encryption;
};

std::unique_ptr<Rendezvous> serve(BootstrapPlace& place, const Entrant& entrant) {
  const Hello& hello = entrant.hello;
  // Every rank has a connection here. Known before anyone has come, this needs no timeout to be
  // noticed.
  need(make_room_for_descriptors(static_cast<std::size_t>(hello.size)),
       "rank 0 holds a connection to each of ", hello.size, " ranks, and no more than ",
       most_descriptors(),
       " files may be open in its process; raise the hard limit on its host (see ulimit -n; docker "
       "run --ulimit nofile=65536)");
  auto loop = std::make_shared<ControlLoop>();
  Listening listening = listen_at(loop->io(), place, entrant.deadline);
  const int port = listening.port;
  // Rank 0 has a connection like every other rank, so that its frames take the same path.
  auto [mine, coordinators] = socket_pair(loop->io());
  auto server = ControlServer::start(*loop, std::move(listening),
                                     {place.token(), place.trust(), entrant.encryption}, hello);
  loop->run([&server, &entrant, &coordinators = coordinators] {
    server->take_newcomers(entrant.first_newcomer);
    server->adopt(std::move(coordinators), entrant.hello);
  });
  auto member = make_member(hello, loop, std::move(mine), server);
  // Last: whoever finds the address is served at once.
  place.publish(port);
  return member;
}

std::unique_ptr<Rendezvous> visit(BootstrapPlace& place, const Entrant& entrant) {
  auto loop = std::make_shared<ControlLoop>();
  Entrance entrance =
      find_coordinator(loop->io(), place, entrant.hello, entrant.deadline, entrant.encryption);
  const Welcome& as = entrance.welcome;
  return make_member({as.rank, as.size, {}}, loop, std::move(entrance.line), nullptr);
}

std::unique_ptr<Rendezvous> enter(BootstrapPlace& place, const Entrant& entrant) {
  return entrant.hello.rank == 0 ? serve(place, entrant) : visit(place, entrant);
}

void log_joined(const Rendezvous& rendezvous, std::string_view how, const BootstrapPlace& place,
                Clock::time_point begin) {
  log().info("rank {} of {}, {}, joined by {} in {} ms", rendezvous.rank(), rendezvous.size(), how,
             place.name(),
             std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count());
}

std::unique_ptr<Rendezvous> join_at(BootstrapPlace& place, const Config& config,
                                    const Launch& launch, Clock::time_point begin) {
  const auto deadline = begin + std::min(config.join_timeout, longest_timeout);
  const Encryption encryption = encryption_of(config);
  const Hello hello{launch.rank, place.size(), job_terms(config)};
  if (hello.size == 1) {
    return std::move(open_rendezvous_in_process(1).front());
  }
  auto rendezvous = enter(place, {hello, hello.size, deadline, encryption});
  // An empty exchange ends only when every rank has come, or says who has not.
  rendezvous->exchange({}, "joining", deadline);
  log_joined(*rendezvous, "launched by " + launch.by, place, begin);
  return rendezvous;
}

std::unique_ptr<Rendezvous> grow_at(BootstrapPlace& place, const Config& config,
                                    const Growth& growth, Clock::time_point begin) {
  const auto deadline = begin + std::min(config.join_timeout, longest_timeout);
  Entrant entrant{.hello = {unnumbered, unnumbered, job_terms(config)},
                  .first_newcomer = growth.members,
                  .deadline = deadline,
                  .encryption = encryption_of(config)};
  if (growth.rank >= 0) {
    entrant.hello.rank = growth.rank;
    entrant.hello.size = growth.members + growth.newcomers;
  }
  auto rendezvous = enter(place, entrant);
  const auto watched = growth.watch ? growth.watch(*rendezvous) : nullptr;
  rendezvous->exchange({}, "growing", deadline);
  log_joined(*rendezvous, growth.rank < 0 ? "a newcomer" : "with newcomers", place, begin);
  return rendezvous;
}

Launch launch_of(const Growth& growth) {
  return {.by = "a job that grows",
          .rank = growth.rank,
          .size = growth.rank < 0 ? unnumbered : growth.members + growth.newcomers};
}

}  // namespace

std::unique_ptr<Rendezvous> open_rendezvous(const Config& config) {
  const auto begin = Clock::now();
  const Launch launch = detect_launch(config, environment);
  if (launch.size == 1) {
    return std::move(open_rendezvous_in_process(1).front());
  }
  const auto place = find_bootstrap_place(config, launch);
  return join_at(*place, config, launch, begin);
}

std::unique_ptr<Rendezvous> open_rendezvous(const Config& config, Store& store) {
  const auto begin = Clock::now();
  require(config.rank >= 0 && config.rank < config.size, "rank is ", config.rank, " and size ",
          config.size, "; whoever joins by a store says both");
  const Launch launch{.by = "its framework", .rank = config.rank, .size = config.size};
  const auto place = bootstrap_at_store(config, launch, store, contact_key);
  return join_at(*place, config, launch, begin);
}

std::unique_ptr<Rendezvous> open_rendezvous(const Config& config, const Growth& growth) {
  const auto begin = Clock::now();
  // A launcher's own servers know the ranks that it launched, and no others.
  require(config.rendezvous.starts_with("tcp://") || config.rendezvous.starts_with("file://"),
          "newcomers are to be met at \"", config.rendezvous,
          "\"; it must be tcp://host:port, of rank 0's host, or file://path");
  Launch launch = launch_of(growth);
  launch.rendezvous = config.rendezvous;
  const auto place = find_bootstrap_place(config, launch);
  return grow_at(*place, config, growth, begin);
}

std::unique_ptr<Rendezvous> open_rendezvous(const Config& config, const Growth& growth,
                                            Store& store) {
  const auto begin = Clock::now();
  const auto place = bootstrap_at_store(config, launch_of(growth), store, growth_key);
  return grow_at(*place, config, growth, begin);
}

}  // namespace sprat::comm
