#include "comm/endpoint/listener.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/log.hpp"

namespace sprat::comm::endpoint {
namespace {

using namespace std::chrono_literals;

/// Connections that have proved nothing, or whose other streams are still to come; more of them
/// wait in the kernel.
constexpr std::size_t most_strangers = 256, most_coming = 64;
/// Whoever is silent for so long makes way for those that wait.
constexpr auto patience_with_strangers = 10s;

}  // namespace

Listener::Listener(const Device& device, PortRange ports)
    : socket_(sockets::listen_at(device.address, ports)),
      invitation_(invite(socket_.address, device.streams)) {}

std::unique_ptr<Connection> Listener::accept() {
  accept_strangers();
  for (auto& stranger : strangers_) {
    greet(stranger);
  }
  std::erase_if(strangers_, [](const auto& one) { return one == nullptr || one->over(); });
  const auto whole = std::find_if(coming_.begin(), coming_.end(),
                                  [](const Coming& one) { return one.missing == 0; });
  if (whole == coming_.end()) {
    return nullptr;
  }
  auto connection = std::make_unique<Connection>(std::move(whole->channels));
  coming_.erase(whole);
  return connection;
}

void Listener::accept_strangers() {
  for (;;) {
    const auto now = std::chrono::steady_clock::now();
    if (strangers_.size() >= most_strangers) {
      if (now - strangers_.front()->since() < patience_with_strangers) {
        return;
      }
      strangers_.erase(strangers_.begin());
    }
    sockets::Descriptor socket = sockets::accept_from(socket_);
    if (socket.number() < 0) {
      return;  // whatever it is, who calls again sees whether it has passed
    }
    strangers_.push_back(std::make_unique<sockets::Channel>(
        std::move(socket),
        [this](const sockets::StreamName& name) -> std::optional<std::string> {
          if (name.to != 0 || name.stream >= invitation_.streams) {
            return std::nullopt;
          }
          return key_of(invitation_, name);
        },
        now));
  }
}

void Listener::greet(std::unique_ptr<sockets::Channel>& stranger) {
  const sockets::Channel::Progress progress = stranger->greet();
  if (progress.moved.error != 0 || progress.greeted == sockets::Greeted::wrong) {
    log().debug("endpoint: a connection at {} is turned away", describe(socket_.address));
    stranger->close();
  } else if (progress.greeted == sockets::Greeted::proved) {
    settle(stranger);
  }
}

/// It knows the key. It stands unless two that connect have drawn the same number, which the second
/// is told, so that it draws another.
void Listener::settle(std::unique_ptr<sockets::Channel>& stranger) {
  Coming& whole = coming(stranger->name().from);
  auto& place = whole.channels[stranger->stream()];
  const bool stands = place == nullptr;
  stranger->answer(stands);
  const sockets::Channel::Progress progress = stranger->greet();
  if (!stands || progress.moved.error != 0 || stranger->greeting_waits()) {
    stranger->close();  // a new connection takes one byte: it has gone
    return;
  }
  place = std::move(stranger);
  --whole.missing;
}

Listener::Coming& Listener::coming(int number) {
  const auto found = std::find_if(coming_.begin(), coming_.end(),
                                  [number](const Coming& one) { return one.number == number; });
  if (found != coming_.end()) {
    return *found;
  }
  // The oldest has waited longest for streams that do not come: its other end is gone.
  if (coming_.size() >= most_coming) {
    const auto stuck = std::find_if(coming_.begin(), coming_.end(),
                                    [](const Coming& one) { return one.missing > 0; });
    if (stuck != coming_.end()) {
      coming_.erase(stuck);
    }
  }
  Coming& made = coming_.emplace_back();
  made.number = number;
  made.channels.resize(invitation_.streams);
  made.missing = invitation_.streams;
  return made;
}

}  // namespace sprat::comm::endpoint
