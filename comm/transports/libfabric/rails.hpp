// Messages over several rails, an endpoint each: a message's tag says which carries it.
//
// Messages of equal tags keep to one rail, so they stay in order. The chunks of a collective have
// consecutive tags, so they take turns.
#pragma once

#include <memory>
#include <vector>

#include "comm/transports/libfabric/messages.hpp"

namespace sprat::comm::libfabric {

class Rails final : public MessageTransport {
 public:
  /// At least one. Every rank needs as many.
  explicit Rails(std::vector<std::unique_ptr<Messages>> rails) : rails_(std::move(rails)) {}

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
  void cancel(MessageRequest& request) noexcept override;

 private:
  Messages& rail_of(std::uint64_t tag) const { return *rails_[tag % rails_.size()]; }

  std::vector<std::unique_ptr<Messages>> rails_;
};

}  // namespace sprat::comm::libfabric
