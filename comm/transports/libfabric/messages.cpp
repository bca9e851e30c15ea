// Messages through one libfabric endpoint.
#include "comm/transports/libfabric/messages.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/transports/libfabric/provider.hpp"

namespace sprat::comm::libfabric {

namespace {

using State = MessageRequest::State;

/// How long a request that cannot be withdrawn may take to end by itself.
constexpr std::chrono::milliseconds cancel_patience{100};
/// How long a question about what has come may take, before the answer counts as not known.
constexpr std::chrono::milliseconds peek_patience{100};
/// The kernel lets an IPv6 address be used only after it has looked for duplicates of it, a second
/// or two after its interface came up. Until then an endpoint cannot be opened on it.
constexpr std::chrono::milliseconds address_patience{4'000}, address_look{50};
constexpr std::size_t operations_a_growth = 64;
constexpr std::size_t completions_a_batch = 16;
/// Bounds one call of progress(), however fast completions come: its caller holds the token.
constexpr int batches_a_call = 8;

void check(int status, const char* call, const fi_info& info) {
  need(status == 0, "libfabric's ", call, " failed for provider ", info.fabric_attr->prov_name,
       " on ", info.domain_attr->name, ": ", library().strerror(-status));
}

/// These crash if they are closed in the midst of a long message (libfabric 1.17):
/// rxm_handle_comp_error() follows the null context of an answer to a peer's read. Over sockets
/// nothing moves without progress(), so an endpoint of these does no harm if it stays open.
bool crashes_when_closed(std::string_view provider) {
  return provider == "tcp;ofi_rxm" || provider == "net;ofi_rxm";
}

/// Kept reachable, so that leak checkers do not report them.
void keep_until_exit(const std::vector<fid*>& handles) {
  static auto& mutex = *new std::mutex;  // guards the list; ranks that are threads share it
  static auto& kept = *new std::vector<fid*>;
  const std::lock_guard lock(mutex);
  kept.insert(kept.end(), handles.begin(), handles.end());
}

}  // namespace

Messages::Messages(Info info, PortRange ports, int rank, int size)
    : info_(std::move(info)), rank_(rank), peers_(static_cast<std::size_t>(size)) {
  open(ports);
  log().debug("messages through libfabric's {} on {}", name(), info_->domain_attr->name);
}

void Messages::open(PortRange ports) {
  fid_fabric* fabric = nullptr;
  check(library().fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric", *info_);
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain", *info_);
  domain_.reset(domain);

  fi_av_attr av_attributes{};
  av_attributes.type = FI_AV_TABLE;
  av_attributes.count = peers_.size();
  fid_av* av = nullptr;
  check(fi_av_open(domain, &av_attributes, &av, nullptr), "fi_av_open", *info_);
  addresses_.reset(av);

  // Room for the completions of all that the provider lets be posted at a time.
  check(completions_.open({.fabric = fabric,
                           .domain = domain,
                           .size = info_->tx_attr->size + info_->rx_attr->size,
                           .wakeup = wakeup_of(name(), library().version())}),
        "fi_cq_open", *info_);
  open_endpoint(ports);
}

void Messages::open_endpoint(PortRange ports) {
  const auto deadline = std::chrono::steady_clock::now() + address_patience;
  int status = try_ports(ports);
  while (status == -FI_EADDRNOTAVAIL && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(address_look);
    status = try_ports(ports);
  }
  check(status, "endpoint", *info_);
}

/// A provider on IP listens on a port. It is looked for from the end of the range, for the
/// coordinator and the survivor listeners take theirs from the beginning.
int Messages::try_ports(PortRange ports) {
  if (ports.any() || !set_port(*info_, ports.last)) {
    return try_endpoint();
  }
  int status = -FI_EADDRINUSE;
  for (int port = ports.last; port >= ports.first && status == -FI_EADDRINUSE; --port) {
    set_port(*info_, port);
    status = try_endpoint();
  }
  need(status != -FI_EADDRINUSE, "every port of SPRAT_PORTS=", ports.first, "-", ports.last,
       " is taken on this host; every rank needs one, a second to speak to other hosts, and rank 0 "
       "one more: see "
       "who has them with ss -ltnp, or set a wider range on every rank");
  return status;
}

/// Opens and enables an endpoint. The provider may find in either step that another process has the
/// port.
int Messages::try_endpoint() {
  fid_ep* ep = nullptr;
  int status = fi_endpoint(domain_.get(), info_.get(), &ep, nullptr);
  if (status != 0) {
    return status;
  }
  endpoint_.reset(ep);
  status = fi_ep_bind(ep, &addresses_->fid, 0);
  if (status == 0) {
    status = fi_ep_bind(ep, &completions_.get()->fid, FI_TRANSMIT | FI_RECV);
  }
  if (status == 0) {
    status = fi_enable(ep);
  }
  if (status != 0) {
    endpoint_.reset();
  }
  return status;
}

/// The provider's name, a zero byte, and the endpoint's name.
Blob Messages::address() {
  std::array<std::byte, 512> endpoint;
  std::size_t bytes = endpoint.size();
  check(endpoint_ ? fi_getname(&endpoint_->fid, endpoint.data(), &bytes) : -FI_EOPBADSTATE,
        "fi_getname", *info_);
  const std::string_view provider(name());
  Blob blob(provider.size() + 1 + bytes);
  std::memcpy(blob.data(), provider.data(), provider.size());
  std::memcpy(blob.data() + provider.size() + 1, endpoint.data(), bytes);
  return blob;
}

void Messages::connect(std::span<const Blob> addresses) {
  const std::string_view mine(name());
  for (std::size_t rank = 0; rank < addresses.size() && rank < peers_.size(); ++rank) {
    const Blob& blob = addresses[rank];
    if (blob.empty()) {
      continue;
    }
    const std::string_view whole(reinterpret_cast<const char*>(blob.data()), blob.size());
    const std::string_view theirs = whole.substr(0, whole.find('\0'));
    if (theirs != mine || theirs.size() == whole.size()) {
      throw Error(ErrorCode::mismatch,
                  text("rank ", rank, " speaks through libfabric's \"", theirs, "\", rank ", rank_,
                       " through \"", mine, "\"; set SPRAT_PROVIDER alike on every host"),
                  static_cast<int>(rank));
    }
    const int inserted = fi_av_insert(addresses_.get(), blob.data() + theirs.size() + 1, 1,
                                      &peers_[rank].address, 0, nullptr);
    need(inserted == 1, "libfabric's ", mine, " cannot use the address of rank ", rank);
  }
}

void Messages::send(MessageRequest& request, int peer, std::uint64_t tag,
                    std::span<const std::byte> data) {
  Operation& operation = begin(request, Direction::send, peer, tag);
  operation.source = data.data();
  operation.bytes = data.size();
  start(operation);
}

void Messages::recv(MessageRequest& request, int peer, std::uint64_t tag,
                    std::span<std::byte> data) {
  Operation& operation = begin(request, Direction::recv, peer, tag);
  operation.target = data.data();
  operation.bytes = data.size();
  start(operation);
}

Messages::Operation& Messages::begin(MessageRequest& request, Direction direction, int peer,
                                     std::uint64_t tag) {
  if (free_.empty()) {
    // Room is made for all of them now, so that neither giving one back nor letting one wait
    // allocates.
    free_.reserve(operations_.size() + operations_a_growth);
    waiting_.reserve(operations_.size() + operations_a_growth);
    for (std::size_t made = 0; made < operations_a_growth; ++made) {
      free_.push_back(&operations_.emplace_back());
    }
  }
  Operation& operation = *free_.back();
  free_.pop_back();
  operation.request = &request;
  operation.direction = direction;
  operation.tag = tag;
  request.state = State::posted;
  request.bytes = 0;
  request.error = 0;
  request.peer = peer;
  request.provider[0] = &operation;
  return operation;
}

void Messages::start(Operation& operation) {
  const int rank = operation.request->peer;
  if (!endpoint_) {
    return fail(operation, ENOTCONN);
  }
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size() ||
      peers_[static_cast<std::size_t>(rank)].address == FI_ADDR_NOTAVAIL) {
    return fail(operation, EHOSTUNREACH);
  }
  if (operation.bytes > info_->ep_attr->max_msg_size) {
    return fail(operation, EMSGSIZE);
  }
  // A question is never kept for later: the caller of probe() asks again.
  if (operation.direction == Direction::peek) {
    const ssize_t status = post(operation);
    return status == 0 ? void() : fail(operation, to_errno(static_cast<int>(-status)));
  }
  // Behind those that wait already: messages to one peer and direction keep their order.
  int& waiting =
      peers_[static_cast<std::size_t>(rank)].waiting[static_cast<std::size_t>(operation.direction)];
  const ssize_t status = waiting > 0 ? -FI_EAGAIN : post(operation);
  if (status == -FI_EAGAIN) {
    ++waiting;
    waiting_.push_back(&operation);
  } else if (status != 0) {
    fail(operation, to_errno(static_cast<int>(-status)));
  }
}

ssize_t Messages::post(Operation& operation) {
  const fi_addr_t address = peers_[static_cast<std::size_t>(operation.request->peer)].address;
  switch (operation.direction) {
    case Direction::send:
      return fi_tsend(endpoint_.get(), operation.source, operation.bytes, nullptr, address,
                      operation.tag, &operation.context);
    case Direction::recv:
      return fi_trecv(endpoint_.get(), operation.target, operation.bytes, nullptr, address,
                      operation.tag, 0, &operation.context);
    case Direction::peek: {
      fi_msg_tagged message{};
      message.addr = address;
      message.tag = operation.tag;
      message.context = &operation.context;
      return fi_trecvmsg(endpoint_.get(), &message, FI_PEEK | FI_COMPLETION);
    }
  }
  return -FI_EINVAL;
}

/// A provider answers at once, from what has come. On a machine that did not let this thread run,
/// an answer may come after its time. It belongs to a question of the past, so the next call waits
/// until it is there and then asks its own.
std::optional<std::size_t> Messages::probe(int peer, std::uint64_t tag) noexcept {
  if (peek_.state == State::posted) {
    progress();
  }
  if (peek_.state == State::posted) {
    return std::nullopt;
  }
  start(begin(peek_, Direction::peek, peer, tag));
  const auto deadline = std::chrono::steady_clock::now() + peek_patience;
  while (peek_.state == State::posted && std::chrono::steady_clock::now() < deadline) {
    progress();
  }
  return peek_.state == State::done ? std::optional(peek_.bytes) : std::nullopt;
}

bool Messages::progress() noexcept {
  bool moved = false;
  for (int batch = 0; endpoint_ && batch < batches_a_call && read_completions(); ++batch) {
    moved = true;
  }
  if (endpoint_ && !waiting_.empty()) {
    moved |= retry();
  }
  return moved;
}

/// What waits for room is offered again and again: no descriptor tells when there is some.
NewsDescriptors::Next Messages::next() noexcept {
  if (!endpoint_ || !waiting_.empty()) {
    return Next::look_later;
  }
  return completions_.next();
}

/// Offers what waits to the provider again. Once the provider has refused a message of a peer and
/// direction, the others of these wait too, so that nothing overtakes.
bool Messages::retry() {
  ++round_;
  std::size_t kept = 0;
  const std::size_t before = waiting_.size();
  for (std::size_t at = 0; at < before; ++at) {
    Operation& operation = *waiting_[at];
    Peer& peer = peers_[static_cast<std::size_t>(operation.request->peer)];
    const auto direction = static_cast<std::size_t>(operation.direction);
    const ssize_t status = peer.refused_in[direction] == round_ ? -FI_EAGAIN : post(operation);
    if (status == -FI_EAGAIN) {
      peer.refused_in[direction] = round_;
      waiting_[kept++] = &operation;
      continue;
    }
    --peer.waiting[direction];
    if (status != 0) {
      fail(operation, to_errno(static_cast<int>(-status)));
    }
  }
  waiting_.resize(kept);
  return kept < before;
}

/// Ends what the provider says has ended; false if there was nothing.
bool Messages::read_completions() {
  std::array<fi_cq_tagged_entry, completions_a_batch> entries;
  const ssize_t count = fi_cq_read(completions_.get(), entries.data(), entries.size());
  if (count == -FI_EAVAIL) {
    return read_error();
  }
  if (count < 0) {
    // A queue that fails reports no completion any more, so every request would wait for ever.
    if (count != -FI_EAGAIN) {
      log().error("libfabric's {} on {} failed: {}", name(), info_->domain_attr->name,
                  library().strerror(static_cast<int>(-count)));
      close(to_errno(static_cast<int>(-count)));
    }
    return false;
  }
  for (std::size_t at = 0; at < static_cast<std::size_t>(count); ++at) {
    auto& operation = *static_cast<Operation*>(entries[at].op_context);
    finish(operation, operation.direction == Direction::send ? operation.bytes : entries[at].len);
  }
  return count > 0;
}

bool Messages::read_error() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(completions_.get(), &entry, 0) != 1) {
    return false;
  }
  // An error that belongs to no request of ours ends none.
  if (entry.op_context == nullptr) {
    log().debug("libfabric's {} on {} reports: {}", name(), info_->domain_attr->name,
                library().strerror(entry.err));
    return true;
  }
  auto& operation = *static_cast<Operation*>(entry.op_context);
  MessageRequest& request = *operation.request;
  fail(operation, to_errno(entry.err));
  // The message was longer than its buffer: what fitted and what did not make its length.
  const std::size_t length = entry.len + entry.olen;
  if (entry.err == FI_ETRUNC && entry.olen > 0 && length < whole_below_) {
    request.bytes = length;
  }
  return true;
}

void Messages::ask_back(MessageRequest& request) noexcept {
  if (request.state != State::posted) {
    return;
  }
  auto& operation = *static_cast<Operation*>(request.provider[0]);
  // The provider does not know of it yet.
  if (std::erase(waiting_, &operation) > 0) {
    --peers_[static_cast<std::size_t>(request.peer)]
          .waiting[static_cast<std::size_t>(operation.direction)];
    return fail(operation, ECANCELED);
  }
  fi_cancel(&endpoint_->fid, &operation.context);
}

void Messages::cancel(MessageRequest& request) noexcept {
  ask_back(request);
  const auto deadline = std::chrono::steady_clock::now() + cancel_patience;
  while (request.state == State::posted && std::chrono::steady_clock::now() < deadline) {
    progress();
  }
  // The provider keeps the memory: only the end of the endpoint makes it the caller's again.
  if (request.state == State::posted) {
    close(ECANCELED);
  }
}

void Messages::finish(Operation& operation, std::size_t bytes) {
  operation.request->bytes = bytes;
  operation.request->state = State::done;
  operation.request = nullptr;
  free_.push_back(&operation);
}

void Messages::fail(Operation& operation, int error) {
  operation.request->error = error;
  operation.request->state = State::failed;
  operation.request = nullptr;
  free_.push_back(&operation);
}

/// Ends everything in flight for good: afterwards nobody touches the requests' memory. The endpoint
/// is closed for that, since hardware (efa, verbs) ends what was posted without this process's help
/// and would still write.
void Messages::close(int error) {
  if (crashes_when_closed(name())) {
    std::vector<fid*> handles = completions_.release();
    handles.insert(handles.end(), {&endpoint_.release()->fid, &addresses_.release()->fid,
                                   &domain_.release()->fid, &fabric_.release()->fid});
    keep_until_exit(handles);
  } else {
    if (const int status = fi_close(&endpoint_.release()->fid); status != 0) {
      log().error(
          "libfabric's {} on {} does not close ({}): messages that were given up may still "
          "be written to memory",
          name(), info_->domain_attr->name, library().strerror(-status));
    }
    completions_.close();
    addresses_.reset();
    domain_.reset();
    fabric_.reset();
  }
  waiting_.clear();
  for (Operation& operation : operations_) {
    if (operation.request != nullptr) {
      fail(operation, error);
    }
  }
}

}  // namespace sprat::comm::libfabric
