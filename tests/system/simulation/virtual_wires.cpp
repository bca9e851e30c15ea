#include "tests/system/simulation/virtual_wires.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sprat::simulation {

using State = comm::MessageRequest::State;

Network::Network(Simulator& simulator, int ranks) : simulator_(simulator), news_(ranks) {
  constexpr std::size_t limits[] = {0, 100, 2'000, ~std::size_t{0}};
  eager_bytes_ = limits[simulator.random().below(4)];
  errors_ = simulator.random().once_in(2);
  has_descriptors_ = simulator.random().once_in(2);
}

std::unique_ptr<comm::MessageTransport> Network::open(int rank) {
  return std::make_unique<VirtualWires>(*this, rank);
}

void Network::lose(int rank) {
  std::erase_if(messages_, [&](WireMessage& message) {
    if (message.from != rank) {
      return false;
    }
    message.request = nullptr;
    return !message.eager || (!has_arrived(message) && simulator_.random().once_in(2));
  });
  tell_all();
}

// The receiver has it then, and the sender of a short one knows.
void Network::deliver(const WireMessage& message) {
  const auto tell = [this, from = message.from, to = message.to, when = message.arrives] {
    delivered_ = when;
    news_[from] = news_[to] = true;
  };
  simulator_.at(message.arrives, tell);
}

void Network::tell_all() { news_.assign(news_.size(), true); }

VirtualWires::~VirtualWires() {
  std::erase_if(network_.messages_, [this](const WireMessage& message) {
    return message.from == rank_ && !message.eager;
  });
}

void VirtualWires::send(comm::MessageRequest& request, int peer, std::uint64_t tag,
                        std::span<const std::byte> data) {
  Random& random = network_.simulator_.random();
  request.state = State::posted;
  request.error = 0;
  request.peer = peer;
  WireMessage message{.from = rank_, .to = peer, .tag = tag, .copy = {}, .source = data};
  message.request = &request;
  message.eager = data.size() <= network_.eager_bytes_;
  if (message.eager) {
    message.copy.assign(data.begin(), data.end());
  }
  const nanoseconds delay(random.once_in(30) ? random.below(30'000'000)
                                             : 1'000 + random.below(200'000));
  message.arrives = network_.simulator_.now() + delay;
  network_.deliver(message);
  network_.messages_.push_back(std::move(message));
}

void VirtualWires::recv(comm::MessageRequest& request, int peer, std::uint64_t tag,
                        std::span<std::byte> data) {
  request.state = State::posted;
  request.error = 0;
  request.bytes = 0;
  request.peer = peer;
  receives_.push_back({&request, peer, tag, data});
}

bool VirtualWires::fail_if_dead(comm::MessageRequest& request, int peer) {
  if (!network_.errors_ || !network_.simulator_.dead(peer)) {
    return false;
  }
  request.error = ECONNRESET;
  request.state = State::failed;
  return true;
}

std::list<WireMessage>::iterator VirtualWires::first(int from, std::uint64_t tag) {
  return std::find_if(
      network_.messages_.begin(), network_.messages_.end(), [&](const WireMessage& message) {
        return message.from == from && message.to == rank_ && message.tag == tag && !message.taken;
      });
}

std::optional<std::size_t> VirtualWires::probe(int peer, std::uint64_t tag) noexcept {
  const auto found = first(peer, tag);
  if (found == network_.messages_.end() || !network_.has_arrived(*found)) {
    return std::nullopt;
  }
  return found->source.size();
}

bool VirtualWires::match(Receive& receive) {
  const auto found = first(receive.from, receive.tag);
  if (found == network_.messages_.end()) {
    return fail_if_dead(*receive.request, receive.from);
  }
  WireMessage& message = *found;
  // A long message moves only while its sender does.
  if (!network_.has_arrived(message) ||
      (!message.eager && network_.simulator_.stopped(message.from))) {
    return false;
  }
  const std::span<const std::byte> data =
      message.eager ? std::span<const std::byte>(message.copy) : message.source;
  if (data.size() > receive.target.size()) {
    receive.request->error = EMSGSIZE;
    receive.request->state = State::failed;
  } else {
    std::copy(data.begin(), data.end(), receive.target.begin());
    receive.request->bytes = data.size();
    receive.request->state = State::done;
  }
  message.taken = true;
  network_.news_[message.from] = true;
  if (message.request == nullptr) {
    network_.messages_.erase(found);
  }
  return true;
}

bool VirtualWires::progress() noexcept {
  bool moved = false;
  for (auto at = receives_.begin(); at != receives_.end();) {
    const bool ended = match(*at);
    moved |= ended;
    at = ended ? receives_.erase(at) : std::next(at);
  }
  for (auto at = network_.messages_.begin(); at != network_.messages_.end();) {
    WireMessage& message = *at;
    const bool mine = message.from == rank_ && message.request != nullptr;
    const bool accepted = message.eager && network_.has_arrived(message);
    if (mine && (message.taken || accepted)) {
      message.request->state = State::done;
      message.request = nullptr;
      moved = true;
    } else if (mine && fail_if_dead(*message.request, message.to)) {
      at = network_.messages_.erase(at);
      moved = true;
      continue;
    }
    at = message.taken && message.request == nullptr ? network_.messages_.erase(at) : std::next(at);
  }
  return moved;
}

// Like libfabric's queues it says nothing of a message that no receive has asked for: who looks for
// those probes afterwards.
comm::NewsDescriptors::Next VirtualWires::next() noexcept {
  network_.simulator_.point();
  network_.news_[rank_] = false;
  return Next::sleep;
}

void VirtualWires::cancel(comm::MessageRequest& request) noexcept {
  if (request.state != State::posted) {
    return;
  }
  std::erase_if(receives_, [&](const Receive& one) { return one.request == &request; });
  for (auto at = network_.messages_.begin(); at != network_.messages_.end(); ++at) {
    if (at->request == &request) {
      at->request = nullptr;
      if (!at->eager) {
        network_.messages_.erase(at);
      }
      break;
    }
  }
  request.error = ECANCELED;
  request.state = State::failed;
}

}  // namespace sprat::simulation
