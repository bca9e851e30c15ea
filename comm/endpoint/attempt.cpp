#include "comm/endpoint/attempt.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/base/check.hpp"
#include "comm/encryption/token_proof.hpp"
#include "comm/transports/sockets/tcp.hpp"

namespace sprat::comm::endpoint {
namespace {

/// A listener turns away who waits while strangers occupy all places, and who draws a number that
/// another has drawn.
constexpr int most_retries = 8;

/// One of 2^30, for handshakes take no larger ones.
int draw_number() {
  const Nonce random = random_nonce();
  std::uint32_t number = 0;
  std::memcpy(&number, random.data(), sizeof number);
  return static_cast<int>(number & ((1u << 30) - 1));
}

}  // namespace

Attempt::Attempt(const Device& from, const Invitation& to) : from_(from), to_(to) { start(); }

void Attempt::start() {
  number_ = draw_number();
  channels_.clear();
  for (std::size_t stream = 0; stream < to_.streams; ++stream) {
    channels_.push_back(connect(stream));
  }
  stands_.assign(to_.streams, false);
}

std::unique_ptr<sockets::Channel> Attempt::connect(std::size_t stream) {
  sockets::Descriptor socket = sockets::connect_to(from_.address, to_.address);
  if (socket.number() < 0) {
    give_up(errno);
  }
  const sockets::StreamName name{.from = number_, .to = 0, .stream = stream};
  return std::make_unique<sockets::Channel>(std::move(socket), name, key_of(to_, name));
}

std::unique_ptr<Connection> Attempt::poll() {
  for (std::size_t stream = 0; stream < channels_.size(); ++stream) {
    if (!stands_[stream]) {
      greet(stream);
    }
  }
  if (std::find(stands_.begin(), stands_.end(), false) != stands_.end()) {
    return nullptr;
  }
  return std::make_unique<Connection>(std::move(channels_));
}

void Attempt::greet(std::size_t stream) {
  const sockets::Channel::Progress progress = channels_[stream]->greet();
  if (progress.moved.error == ENOTCONN) {
    return;  // the kernel still connects
  }
  if (progress.moved.error == ECONNRESET && retries_ < most_retries) {
    ++retries_;
    channels_[stream] = connect(stream);
    return;
  }
  if (progress.moved.error != 0) {
    give_up(progress.moved.error);
  }
  switch (progress.greeted) {
    case sockets::Greeted::stands:
      stands_[stream] = true;
      break;
    case sockets::Greeted::crossed:
      if (++retries_ > most_retries) {
        give_up(ECONNREFUSED);
      }
      start();
      break;
    case sockets::Greeted::wrong:
      give_up(EACCES);
    case sockets::Greeted::not_yet:
    case sockets::Greeted::proved:
      break;
  }
}

void Attempt::give_up(int error) const {
  const std::string peer = describe(to_.address), here = describe(from_.address);
  if (error == EACCES) {
    throw Error(ErrorCode::unavailable,
                text("who listens at ", peer, " does not know the key of its invitation"));
  }
  throw Error(
      ErrorCode::unavailable,
      text("cannot connect from ", from_.interface, " (", here, ") to ", peer, ": ",
           std::strerror(error), "; set SPRAT_INTERFACE to interfaces that reach the other host"));
}

}  // namespace sprat::comm::endpoint
