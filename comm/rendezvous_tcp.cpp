// A job whose ranks are processes: each has a TCP connection to the hub beside rank 0, and keeps
// it.
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/config.hpp"
#include "comm/base/log.hpp"
#include "comm/control_server.hpp"
#include "comm/hub_search.hpp"
#include "comm/job_terms.hpp"
#include "comm/meeting_place.hpp"
#include "comm/rendezvous_member.hpp"

namespace sprat::comm {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// The hub has this long to close a line that a rank has finished.
constexpr auto drain = 2000ms;
/// An earlier job may still be leaving the port that rank 0 is to listen on.
constexpr auto port_patience = 5000ms;

class TcpUplink final : public Uplink {
 public:
  /// Rank 0's has the server too.
  TcpUplink(std::shared_ptr<ControlLoop> loop, std::shared_ptr<ControlServer> server)
      : loop_(std::move(loop)), server_(std::move(server)) {}

  /// On the loop's thread.
  void start(StreamSocket socket, Member& member) {
    ControlConnection::Events events;
    events.received = [&member](Frame frame) {
      if (!std::holds_alternative<Welcome>(frame)) member.received(std::move(frame));
    };
    events.ended = [this, &member](std::string_view how) {
      member.ended(how);
      ended_.set_value();
    };
    connection_ = ControlConnection::start(std::move(socket), max_frame_bytes, std::move(events));
  }

  void send(const Frame& frame) override {
    connection_->send(std::make_shared<const Blob>(encode(frame)));
  }

  void close() noexcept override {
    loop_->run([this] { connection_->finish(); });
    ended_.get_future().wait_for(drain);
    loop_->run([this] { connection_->close(); });
    if (server_) server_->close();
  }

 private:
  const std::shared_ptr<ControlLoop> loop_;
  const std::shared_ptr<ControlServer> server_;
  std::shared_ptr<ControlConnection> connection_;  ///< The loop's.
  std::promise<void> ended_;
};

std::unique_ptr<Member> make_member(const Hello& hello, std::shared_ptr<ControlLoop> loop,
                                    StreamSocket socket, std::shared_ptr<ControlServer> server) {
  auto member = std::make_unique<Member>(hello.rank, hello.size, loop);
  loop->run([&] {
    auto uplink = std::make_unique<TcpUplink>(loop, std::move(server));
    uplink->start(std::move(socket), *member);
    member->attach(std::move(uplink));
  });
  return member;
}

Listening listen_at(asio::io_context& io, const MeetingPlace& place, Clock::time_point deadline) {
  const auto give_up = std::min(deadline, Clock::now() + port_patience);
  for (;;) {
    for (const int port : place.ports()) {
      if (auto listening = listen_on(io, port)) return std::move(*listening);
    }
    need(Clock::now() < give_up, "rank 0 cannot listen at ", place.name(),
         ": another process listens there; end it, or choose another port");
    asio::steady_timer(io, 100ms).wait();
  }
}

std::unique_ptr<Rendezvous> serve(MeetingPlace& place, const Hello& hello,
                                  Clock::time_point deadline) {
  auto loop = std::make_shared<ControlLoop>();
  Listening listening = listen_at(loop->io(), place, deadline);
  const int port = listening.port;
  auto [mine, hubs] = socket_pair(loop->io());
  auto server = ControlServer::start(*loop, std::move(listening), place.token(), hello);
  loop->run([&server, &hello, &hubs = hubs] { server->adopt(std::move(hubs), hello); });
  auto member = make_member(hello, loop, std::move(mine), server);
  place.publish(port);
  return member;
}

std::unique_ptr<Rendezvous> visit(MeetingPlace& place, const Hello& hello,
                                  Clock::time_point deadline) {
  auto loop = std::make_shared<ControlLoop>();
  return make_member(hello, loop, find_hub(loop->io(), place, hello, deadline), nullptr);
}

}  // namespace

std::unique_ptr<Rendezvous> open_rendezvous(const Config& config) {
  const Launch launch = detect_launch(config, environment);
  const auto begin = Clock::now();
  const auto deadline = begin + config.join_timeout;
  if (launch.size == 1) return std::move(open_rendezvous_in_process(1).front());
  const auto place = find_meeting_place(config, launch);
  const Hello hello{launch.rank, place->size(), job_terms(config)};
  if (hello.size == 1) return std::move(open_rendezvous_in_process(1).front());
  auto rendezvous =
      launch.rank == 0 ? serve(*place, hello, deadline) : visit(*place, hello, deadline);
  rendezvous->exchange({}, "joining", deadline);
  log().info("rank {} of {}, launched by {}, joined by {} in {} ms", hello.rank, hello.size,
             launch.by, place->name(),
             std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count());
  return rendezvous;
}

}  // namespace sprat::comm
