// Messages over several rails, an endpoint each. A short message travels whole, on the rail that
// its pair and its tag say; a long one is cut over all of them (rail_cut.hpp).
//
// Messages of one pair and equal tags are cut alike and begin on the same rail, so they stay in
// order on each.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "comm/transports/libfabric/messages.hpp"

namespace sprat::comm::libfabric {

class Rails final : public MessageTransport, private NewsDescriptors {
 public:
  /// This rank's rails, at least one. Every rank needs as many.
  Rails(std::vector<std::unique_ptr<Messages>> rails, int rank);

  const char* name() const override { return rails_.front()->name(); }
  Blob address() override;
  /// Throws as Messages does, and Error{mismatch} if a peer has more or fewer rails.
  void connect(std::span<const Blob> addresses) override;
  void send(MessageRequest& request, int peer, std::uint64_t tag,
            std::span<const std::byte> data) override;
  void recv(MessageRequest& request, int peer, std::uint64_t tag,
            std::span<std::byte> data) override;
  std::optional<std::size_t> probe(int peer, std::uint64_t tag) noexcept override;
  bool progress() noexcept override;
  /// Only if all rails have some.
  NewsDescriptors* news() noexcept override { return descriptors_.empty() ? nullptr : this; }
  /// libfabric's tcp forgets what it has read and not yet matched when the connection ends.
  bool keeps_what_came() const noexcept override { return false; }
  void cancel(MessageRequest& request) noexcept override;

 private:
  /// A message of several pieces, and the request that it is to the caller.
  struct CutMessage {
    MessageRequest* request = nullptr;
    std::byte* target = nullptr;  ///< Null if it is sent.
    std::size_t bytes = 0;        ///< To be sent, or of the receive.
    std::size_t home = 0;
    std::vector<MessageRequest> pieces;  ///< One for each rail; the first is on `home`.
    bool is_whole = false;               ///< The first piece that came is all there is.
    int error = 0;                       ///< The first of a piece's.
    /// What a receive of an empty piece has room for: ofi_rxm never ends one that has no room if a
    /// long message comes (libfabric 1.17).
    std::byte room{};
  };

  std::span<const int> descriptors() const noexcept override { return descriptors_; }
  Next next() noexcept override;

  Messages& rail_of(const CutMessage& message, std::size_t piece) const {
    return *rails_[(message.home + piece) % rails_.size()];
  }
  std::size_t home_of(int from, int to, std::uint64_t tag) const;
  bool is_cut(std::size_t bytes) const;
  Messages& whole_on(std::size_t rail, MessageRequest& request);
  CutMessage& begin_cut(MessageRequest& request, int peer, std::size_t home);
  void settle_or_keep(CutMessage& message);
  bool settle(CutMessage& message) noexcept;
  void ask_back_all(CutMessage& message) noexcept;
  void finish(CutMessage& message) noexcept;
  void close_gaps(CutMessage& message) noexcept;

  // Before the rails, which point to pieces.
  std::deque<CutMessage> cut_;  ///< Never shrinks: addresses are stable.
  std::vector<CutMessage*> free_, open_;
  std::vector<std::unique_ptr<Messages>> rails_;
  int rank_;
  std::vector<int> descriptors_;  ///< Of all rails, or empty.
};

}  // namespace sprat::comm::libfabric
