// Messages between hosts over TCP sockets of our own: who is connected to whom, and which
// connections have something to do.
//
// A connection is made when a rank first sends to another one, for each stream of theirs when there
// are bytes for it. Up to a few connections are looked at by reading from them, one system call
// each, as long as something is awaited on them; more, and all that nobody awaits, by epoll.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/base/fork.hpp"
#include "comm/encryption/tls_session.hpp"
#include "comm/transports/sockets/channel.hpp"
#include "comm/transports/sockets/contact.hpp"
#include "comm/transports/sockets/link.hpp"
#include "comm/transports/sockets/peer_list.hpp"
#include "comm/transports/sockets/read_buffer.hpp"
#include "comm/transports/sockets/tcp.hpp"
#include "comm/transports/transport.hpp"

namespace sprat::comm::sockets {

struct SocketsOptions {
  int rank = 0;
  int size = 1;
  std::vector<NetAddress> rails;  ///< Addresses of this host, one for each interface.
  std::size_t streams_a_rail = 1;
  PortRange ports = {};
  /// Kept of what no receive has asked for, of each peer.
  std::size_t unexpected_bytes = std::size_t{64} << 20;
  /// Null: streams are plain.
  std::shared_ptr<const TlsContext> encryption = nullptr;
};
/// Of streams: a look at a socket gives several records.
TlsOptions stream_encryption(const TlsKey& key);

class Sockets final : public MessageTransport, private NewsDescriptors {
 public:
  /// Listens. Throws Error{unavailable}.
  explicit Sockets(SocketsOptions options);
  /// Waits a moment for what was sent to be with its hosts. Requests still posted stay as they are;
  /// their memory is free.
  ~Sockets() override;
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  const char* name() const override { return "sockets"; }
  Blob address() override { return encode(mine_); }
  /// Throws Error{mismatch} if a peer's address is none, or has another number of rails.
  void connect(std::span<const Blob> addresses) override;
  void send(MessageRequest& request, int peer, std::uint64_t tag,
            std::span<const std::byte> data) override;
  void flush() noexcept override;
  void recv(MessageRequest& request, int peer, std::uint64_t tag,
            std::span<std::byte> data) override;
  std::optional<std::size_t> probe(int peer, std::uint64_t tag) noexcept override;
  std::optional<std::span<const int>> unasked() noexcept override;
  bool progress() noexcept override;
  NewsDescriptors* news() noexcept override { return this; }
  bool drops_unreceived() const noexcept override { return true; }
  void forget(std::uint64_t communicator) noexcept override;
  void cancel(MessageRequest& request) noexcept override;

  /// For tests: connections that stand or are being made.
  std::size_t connections() const { return channels_.size(); }

 private:
  using Time = Channel::Time;

  /// One of the streams that join this rank and a peer.
  struct Stream {
    Channel* channel = nullptr;  ///< Open, or this rank's attempt.
    bool left_alone = false;     ///< This rank does not connect: the peer does, or nobody can.
    int attempts = 0;
  };
  /// A peer that this rank has had to do with.
  struct Line {
    Line(std::size_t count, const UnexpectedRules& unexpected)
        : link(count, unexpected), streams(count) {}
    Link link;
    std::vector<Stream> streams;
    bool listed = false;  ///< In unasked_.
  };

  std::span<const int> descriptors() const noexcept override { return {&epoll_.place(), 1}; }
  Next next() noexcept override;

  Line* line_to(int peer);
  std::optional<std::string> key_of(const StreamName& name) const;
  void want_streams(Line& line, int peer) noexcept;
  void attempt(Line& line, int peer, std::size_t stream) noexcept;
  bool flush(Line& line, int peer) noexcept;
  bool read_expectations() noexcept;
  bool write_kept_back() noexcept;
  bool drive(Channel& channel) noexcept;
  bool move(Channel& channel) noexcept;
  void note_reading(int peer) noexcept;
  bool greet(Channel& channel) noexcept;
  void decide(Channel& channel) noexcept;
  void stand(Channel& channel) noexcept;
  void end_attempt(Channel& channel, int error) noexcept;
  void end_stream(Channel& channel, int error) noexcept;
  void break_line(int peer, int error) noexcept;
  bool look() noexcept;
  void accept_some(const TcpListener& listener) noexcept;
  bool make_room_for_strangers(Time now) noexcept;
  Channel& take_in(std::unique_ptr<Channel> made);
  void watch(Channel& channel);
  void close(Channel& channel) noexcept;
  void enqueue(Channel& channel) noexcept;
  bool drive_ready() noexcept;
  void sweep() noexcept;

  const SocketsOptions options_;
  UnexpectedRules unexpected_;
  const ProcessMark mark_;
  Contact mine_;
  std::vector<TcpListener> listeners_;
  Descriptor epoll_;
  ContactBook contacts_;
  std::vector<std::unique_ptr<Line>> lines_;  ///< By peer; null until there is something to send.
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<Channel*> ready_, moving_;  ///< Those that have, or may have, something to do.
  PeerList kept_back_;                    ///< Peers for which send() has kept messages back.
  PeerList unasked_;                      ///< Those that were read from since they were looked at.
  ReadBuffer buffer_;
  std::size_t calls_ = 0;
  bool look_often_ = true;    ///< Something is awaited that only epoll shows.
  bool others_wait_ = false;  ///< Connections wait in the kernel to be accepted.
  bool has_ended_ = false;    ///< Some channel is over.
};

}  // namespace sprat::comm::sockets
