// A connection between two hosts that share blocks, made by one of them, on which that one sends:
// both prove that they know a secret, then messages follow. Never waits: each step does what the
// socket takes or gives now.
//
// It begins with three messages of fixed length: who connects says its number and a random one; who
// listens answers with a random number of its own and a keyed hash of both; who connects answers
// with another keyed hash. So neither tells the secret, nor believes somebody who does not know it,
// and what was overheard is of no use later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/encryption/keyed_hash.hpp"
#include "io/caches/block_peers.hpp"
#include "io/caches/block_store.hpp"

namespace sprat::io {

/// A fixed number of bytes that come or go in pieces.
class PieceBuffer {
 public:
  void begin(std::size_t bytes) {
    bytes_.resize(bytes);
    done_ = 0;
  }
  bool whole() const { return done_ == bytes_.size(); }
  template <class T>
  T as() const {
    T value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
  }
  template <class T>
  void put(const T& value) {
    begin(sizeof value);
    std::memcpy(bytes_.data(), &value, sizeof value);
  }
  std::vector<std::byte> take() {
    done_ = 0;
    return std::exchange(bytes_, {});
  }
  std::span<const std::byte> bytes() const { return bytes_; }

  /// False once the connection has ended. Stops, unfinished, where nothing more is there.
  bool read_from(int descriptor);
  bool write_to(int descriptor);

 private:
  std::vector<std::byte> bytes_;
  std::size_t done_ = 0;
};

/// How many of the bytes the socket takes now; nothing once the connection has ended.
std::optional<std::size_t> write_some(int descriptor, std::span<const std::byte> bytes);

using PeerNonce = std::array<std::byte, 16>;
using PeerProof = comm::KeyedHash;

struct PeerHello {
  std::uint64_t magic = 0;
  std::uint32_t from = 0, to = 0;
  PeerNonce nonce{};
};

/// What waits to be sent to a host.
struct QueuedMessage {
  std::array<std::byte, peer_header_bytes> header{};
  std::span<const std::byte> body = {};
  std::shared_ptr<const void> owner = {};  ///< Of the body; shared with whoever else reads it.
  std::size_t sent = 0;

  std::size_t bytes() const { return header.size() + body.size(); }
};

/// The end that connects and sends.
class OutgoingConnection {
 public:
  enum class Step : std::uint8_t { goes_on, ended, not_trusted };

  OutgoingConnection(OwnedDescriptor socket, std::uint32_t from, std::uint32_t to);
  int descriptor() const { return socket_.number(); }
  /// Both ends have proved themselves.
  bool ready() const { return state_ == State::ready; }
  /// Something of the greeting waits to be sent.
  bool has_to_write() const { return !out_.whole(); }
  /// Goes on with the greeting, or looks whether the other end is still there.
  Step go_on(const std::string& secret);
  /// Sends some of the message: whether all of it has gone, or nothing once the connection ended.
  std::optional<bool> send(QueuedMessage& message);

 private:
  enum class State : std::uint8_t { connecting, greeting, ready };
  OwnedDescriptor socket_;
  State state_ = State::connecting;
  PeerHello hello_;
  PieceBuffer in_, out_;
};

/// The end that listens and receives.
class IncomingConnection {
 public:
  /// What has been read so far: nothing whole yet, a message, or the end.
  enum class Step : std::uint8_t { waits, message, ended, nonsense };

  explicit IncomingConnection(OwnedDescriptor socket);
  int descriptor() const { return socket_.number(); }
  bool proved() const { return state_ == State::header || state_ == State::body; }
  std::uint32_t from() const { return hello_.from; }
  /// `here` is this host's number among `hosts`. After Step::message take() has it.
  Step read(const std::string& secret, std::uint32_t here, std::size_t hosts);
  ReceivedBlock take();

 private:
  enum class State : std::uint8_t { hello, proof, header, body };
  Step greet(const std::string& secret, std::uint32_t here, std::size_t hosts);
  OwnedDescriptor socket_;
  State state_ = State::hello;
  PeerHello hello_;
  PeerNonce nonce_{};
  PieceBuffer in_, out_;
  PeerHeader header_;
};

}  // namespace sprat::io
