// How the two ends of a new connection find out whose they are, before anything else is read. Pure:
// bytes in, bytes out.
//
// Who connects says who it is, whom it means and which stream this shall be, with a random number.
// Who listens answers with a random number and a keyed hash of both; who connects answers with
// another one. So both know that the other has the pair's key, and neither has told it. Then who
// listens says whether the stream stands: if both ranks connect to each other at a time, the
// connection of the lower one does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "comm/encryption/token_proof.hpp"

namespace sprat::comm::sockets {

/// What a connection is to be.
struct StreamName {
  int from = 0, to = 0;  ///< Ranks: who connects, who listens.
  std::size_t stream = 0;

  bool operator==(const StreamName&) const = default;
};

inline constexpr std::size_t hello_bytes = 40;
using HelloBytes = std::array<std::byte, hello_bytes>;
struct StreamHello {
  StreamName name;
  Nonce nonce{};

  bool operator==(const StreamHello&) const = default;
};
HelloBytes encode(const StreamHello& hello);
/// Nothing if it is none, or of another version or byte order.
std::optional<StreamHello> decode(const HelloBytes& bytes);

/// A fixed number of bytes that come or go in parts.
class Portion {
 public:
  bool whole() const { return done_ == bytes_; }
  std::span<std::byte> rest() { return std::span(room_).subspan(done_, bytes_ - done_); }
  void advance(std::size_t bytes) { done_ += bytes; }
  void expect(std::size_t bytes) {
    done_ = 0;
    bytes_ = bytes;
  }
  void put(std::span<const std::byte> bytes);
  std::span<const std::byte> bytes() const { return std::span(room_).first(bytes_); }

 private:
  std::array<std::byte, 64> room_{};
  std::size_t done_ = 0, bytes_ = 0;
};

/// What has come of a handshake.
enum class Greeted : std::uint8_t {
  not_yet,
  proved,   ///< Of who listens: it is the peer, and waits for answer().
  stands,   ///< Frames may follow.
  crossed,  ///< The peer's own connection stands instead, or will.
  wrong     ///< Not this job's.
};

/// The end that connects. What output() has is to be written and noted; input() says where the
/// next bytes go, exactly as many as belong to the handshake.
class Connecting {
 public:
  Connecting(const StreamName& name, std::string key);
  std::span<const std::byte> output() { return out_.rest(); }
  void wrote(std::size_t bytes) { out_.advance(bytes); }
  std::span<std::byte> input() { return in_.rest(); }
  /// So many bytes of input() have come.
  Greeted got(std::size_t bytes);

 private:
  enum class Phase : std::uint8_t { challenge, verdict };
  Phase phase_ = Phase::challenge;
  StreamHello hello_;
  std::string key_;
  Portion in_, out_;
};

/// The end that listens.
class Accepting {
 public:
  /// The key that this rank has with who says so; nothing if it is not to connect here.
  using Keys = std::function<std::optional<std::string>(const StreamName& name)>;

  explicit Accepting(Keys keys);
  std::span<const std::byte> output() { return out_.rest(); }
  void wrote(std::size_t bytes) { out_.advance(bytes); }
  std::span<std::byte> input() { return in_.rest(); }
  Greeted got(std::size_t bytes);
  /// Once proved: whether the stream stands, or the other one does.
  void answer(bool stands);
  /// Who says so; proved only after Greeted::proved.
  const StreamName& name() const { return hello_.name; }

 private:
  enum class Phase : std::uint8_t { hello, proof, proved };
  Phase phase_ = Phase::hello;
  Keys keys_;
  StreamHello hello_;
  std::string key_;
  Nonce nonce_{};
  Portion in_, out_;
};

/// What both ends of a stream prove, of what each of the two ranks has told the other.
std::string stream_key(std::string_view low, std::string_view high, const StreamName& name);

}  // namespace sprat::comm::sockets
