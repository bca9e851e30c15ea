#include "comm/coordinator/tcp_coordinator_client.hpp"

#include <chrono>
#include <future>
#include <utility>

#include "comm/base/log.hpp"
#include "comm/coordinator/control_connection.hpp"

namespace sprat::comm {
namespace {

using namespace std::chrono_literals;

/// The coordinator has this long to close a line that a rank has finished.
constexpr auto flush_time = 2000ms;

class TcpCoordinatorClient final : public CoordinatorClient {
 public:
  /// Rank 0's has the server too.
  TcpCoordinatorClient(std::shared_ptr<ControlLoop> loop, std::shared_ptr<ControlServer> server)
      : loop_(std::move(loop)), server_(std::move(server)) {}

  /// On the loop's thread.
  void start(ControlLine line, Member& member) {
    ControlConnection::Events events;
    events.received = [&member](Frame&& frame) { member.received(std::move(frame)); };
    events.ended = [this, &member](std::string_view how) {
      member.ended(how);
      ended_.set_value();
    };
    events.silent = [](std::chrono::seconds silence) {
      log().warn("rank 0 has not answered for {} s, though its host does; is it stopped?",
                 silence.count());
    };
    connection_ = ControlConnection::start(std::move(line), max_frame_bytes, std::move(events));
    // Rank 0's connection is a pair of sockets inside this process, which no network can cut.
    if (!server_) {
      connection_->beat();
    }
  }

  void send(const Frame& frame) override {
    connection_->send(std::make_shared<const Blob>(encode(frame)));
  }

  void close() noexcept override {
    // What was sent goes out first, the farewell last; the coordinator then closes its end. The
    // server closes after that, as the farewell of rank 0 goes to the others through it.
    loop_->run([this] { connection_->finish(); });
    ended_.get_future().wait_for(flush_time);
    loop_->run([this] { connection_->close(); });
    if (server_) {
      server_->close();
    }
  }

 private:
  const std::shared_ptr<ControlLoop> loop_;
  const std::shared_ptr<ControlServer> server_;
  std::shared_ptr<ControlConnection> connection_;  ///< The loop's.
  std::promise<void> ended_;
};

}  // namespace

std::unique_ptr<Member> make_member(const Hello& hello, std::shared_ptr<ControlLoop> loop,
                                    ControlLine line, std::shared_ptr<ControlServer> server,
                                    Coordinator::Quorum quorum) {
  auto member = std::make_unique<Member>(hello.rank, hello.size, loop, quorum);
  loop->run([&] {
    auto client = std::make_unique<TcpCoordinatorClient>(loop, std::move(server));
    client->start(std::move(line), *member);
    member->attach(std::move(client));
  });
  return member;
}

}  // namespace sprat::comm
