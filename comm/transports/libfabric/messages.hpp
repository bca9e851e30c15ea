// Messages through one libfabric endpoint.
#pragma once

#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "comm/transports/libfabric/handles.hpp"
#include "comm/transports/libfabric/waitable_queue.hpp"
#include "comm/transports/transport.hpp"
#include "sprat/config.hpp"

namespace sprat::comm::libfabric {

class Messages final : public MessageTransport, private NewsDescriptors {
 public:
  /// Throws Error{unavailable} if the provider cannot be opened. `ports` are for providers on IP.
  Messages(Info info, PortRange ports, int rank, int size);
  /// Requests still posted stay as they are; their memory is free.
  ~Messages() override = default;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// The provider's.
  const char* name() const override { return info_->fabric_attr->prov_name; }
  Blob address() override;
  /// Throws Error{mismatch} if a peer speaks through another provider, Error{unavailable} if an
  /// address is of no use here.
  void connect(std::span<const Blob> addresses) override;
  void send(MessageRequest& request, int peer, std::uint64_t tag,
            std::span<const std::byte> data) override;
  void recv(MessageRequest& request, int peer, std::uint64_t tag,
            std::span<std::byte> data) override;
  std::optional<std::size_t> probe(int peer, std::uint64_t tag) noexcept override;
  bool progress() noexcept override;
  NewsDescriptors* news() noexcept override {
    return completions_.descriptor() < 0 ? nullptr : this;
  }
  /// libfabric's tcp forgets what it has read and not yet matched when the connection ends.
  bool keeps_what_came() const noexcept override { return false; }
  void cancel(MessageRequest& request) noexcept override;
  /// Asks for a posted request back, which then ends in a progress() to come: withdrawn, or as it
  /// would have without this.
  void ask_back(MessageRequest& request) noexcept;
  /// From now on the length of a message that is too long for its receive is told only if it is
  /// less: longer ones are pieces of messages.
  void set_whole_below(std::size_t bytes) { whole_below_ = bytes; }

 private:
  enum class Direction : std::uint8_t { send, recv, peek };

  /// A request's other half. Outlives it if need be: the provider may still hold `context`.
  struct Operation {
    fi_context2 context;                ///< First, so that a completion's context is the operation.
    MessageRequest* request = nullptr;  ///< Null: free.
    Direction direction = Direction::send;
    std::byte* target = nullptr;
    const std::byte* source = nullptr;
    std::size_t bytes = 0;
    std::uint64_t tag = 0;
  };
  /// Requests that the provider had no room for, of one peer and direction in order.
  struct Peer {
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    int waiting[2] = {0, 0};  ///< By direction.
    /// By direction: the last round of retry() in which there was no room.
    std::uint64_t refused_in[2] = {0, 0};
  };

  std::span<const int> descriptors() const noexcept override {
    return {&completions_.descriptor(), 1};
  }
  Next next() noexcept override;

  void open(PortRange ports);
  void open_endpoint(PortRange ports);
  int try_ports(PortRange ports);
  int try_endpoint();
  Operation& begin(MessageRequest& request, Direction direction, int peer, std::uint64_t tag);
  void start(Operation& operation);
  ssize_t post(Operation& operation);
  bool retry();
  bool read_completions();
  bool read_error();
  void finish(Operation& operation, std::size_t bytes);
  void fail(Operation& operation, int error);
  void close(int error);

  Info info_;
  int rank_;
  // In the order in which they are made; closed in the reverse.
  Fabric fabric_;
  Domain domain_;
  AddressVector addresses_;
  WaitableQueue completions_;
  Endpoint endpoint_;  ///< Null once closed for good.

  std::vector<Peer> peers_;
  std::deque<Operation> operations_;  ///< Never shrinks: addresses are stable.
  std::vector<Operation*> free_;
  std::vector<Operation*> waiting_;  ///< In order of posting.
  std::uint64_t round_ = 0;          ///< Of retry().
  MessageRequest peek_;              ///< Of probe().
  std::size_t whole_below_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace sprat::comm::libfabric
