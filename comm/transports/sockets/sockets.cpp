// Events come edge-triggered: once for each change, so that who reads without asking epoll makes no
// system call for it. What was told stays noted in the channel until the kernel says that there is
// no more.
#include "comm/transports/sockets/sockets.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/transports/sockets/farewell.hpp"
#include "comm/transports/sockets/stream_plan.hpp"

namespace sprat::comm::sockets {
namespace {

using namespace std::chrono_literals;

/// Reading in vain from so many connections takes as long as asking epoll twice.
constexpr std::size_t most_read_directly = 4;
/// Calls of progress() between two looks at what nobody awaits.
constexpr std::size_t calls_a_look = 16;
constexpr std::size_t events_a_look = 64;
constexpr std::size_t buffer_bytes = 64 * 1024;
/// So long messages wait for those that are sent next: in one call they take half the time.
constexpr std::size_t least_kept_back = 64 * 1024;
/// Connections that have not proved anything; others wait in the kernel.
constexpr std::size_t most_strangers = 256;
/// From being accepted on, if others wait. It may be long: one that says nothing occupies one of
/// the bounded places and a few bytes.
constexpr auto patience_with_strangers = 10s;
/// More than the kernel holds of one stream: a peer that goes on sending does not keep us here.
constexpr int most_last_reads = 64;
/// A listener may turn away who waits while strangers occupy all places.
constexpr int most_attempts = 8;

std::array<std::byte, 32> random_key() {
  const Nonce first = random_nonce(), second = random_nonce();
  std::array<std::byte, 32> key{};
  std::copy(first.begin(), first.end(), key.begin());
  std::copy(second.begin(), second.end(), key.begin() + nonce_bytes);
  return key;
}

std::string_view text_of(const std::array<std::byte, 32>& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

}  // namespace

TlsOptions stream_encryption(const TlsKey& key) { return {.key = key, .read_ahead = buffer_bytes}; }

Sockets::Sockets(SocketsOptions options)
    : options_(std::move(options)),
      unexpected_{options_.unexpected_bytes},
      epoll_(open_here_only([] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      lines_(static_cast<std::size_t>(options_.size)),
      buffer_(buffer_bytes) {
  need(epoll_.number() >= 0, "cannot watch sockets: ", std::strerror(errno));
  require(!options_.rails.empty() && options_.rails.size() <= most_rails, "there are ",
          options_.rails.size(), " interfaces for sockets; it must be 1 to ", most_rails,
          ": name fewer in SPRAT_INTERFACE");
  mine_.key = random_key();
  mine_.streams_a_rail = static_cast<std::uint32_t>(options_.streams_a_rail);
  for (const NetAddress& rail : options_.rails) {
    listeners_.push_back(listen_at(rail, options_.ports));
    mine_.rails.push_back(listeners_.back().address);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = listeners_.size() - 1;
    need(
        ::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, listeners_.back().socket.number(), &event) == 0,
        "cannot watch a socket: ", std::strerror(errno));
    log().debug("messages through sockets at {}, {} streams to each peer",
                describe(listeners_.back().address), options_.streams_a_rail);
  }
}

Sockets::~Sockets() {
  if (mark_.here()) {
    flush();
    see_off(channels_, buffer_.span());
  }
}

void Sockets::connect(std::span<const Blob> addresses) {
  for (std::size_t rank = 0; rank < addresses.size() && rank < lines_.size(); ++rank) {
    // Messages of a rank to itself do not leave its host.
    if (addresses[rank].empty() || static_cast<int>(rank) == options_.rank) {
      contacts_.add({});
      continue;
    }
    const auto contact = decode_contact(addresses[rank]);
    if (!contact) {
      throw Error(ErrorCode::mismatch,
                  text("rank ", rank, " does not say where its sockets are as rank ", options_.rank,
                       " does; both must run the same version of Sprat, with the same "
                       "SPRAT_PROVIDER"),
                  static_cast<int>(rank));
    }
    if (contact->rails.size() != mine_.rails.size()) {
      throw Error(
          ErrorCode::mismatch,
          text("rank ", rank, " has ", contact->rails.size(), " rails, this rank ",
               mine_.rails.size(), "; let SPRAT_INTERFACE name as many interfaces on every host"),
          static_cast<int>(rank));
    }
    contacts_.add(addresses[rank]);
  }
}

/// Null if the peer is not to be reached.
Sockets::Line* Sockets::line_to(int peer) {
  if (peer < 0 || static_cast<std::size_t>(peer) >= lines_.size()) {
    return nullptr;
  }
  std::unique_ptr<Line>& line = lines_[static_cast<std::size_t>(peer)];
  if (line) {
    return line.get();
  }
  if (const auto contact = contacts_.of(peer)) {
    // Room for all that may be listed, since that must not fail; twice as much at a time.
    unasked_.make_room();
    kept_back_.make_room();
    const std::size_t a_rail = std::min(mine_.streams_a_rail, contact->streams_a_rail);
    line = std::make_unique<Line>(std::min(a_rail * mine_.rails.size(), most_streams), unexpected_);
  }
  return line.get();
}

std::optional<std::string> Sockets::key_of(const StreamName& name) const {
  const int peer = name.from == options_.rank ? name.to : name.from;
  if ((name.from != options_.rank && name.to != options_.rank) || name.stream >= most_streams) {
    return std::nullopt;
  }
  const auto contact = contacts_.of(peer);
  if (!contact) {
    return std::nullopt;
  }
  const std::string_view me = text_of(mine_.key), other = text_of(contact->key);
  return stream_key(options_.rank < peer ? me : other, options_.rank < peer ? other : me, name);
}

void Sockets::send(MessageRequest& request, int peer, std::uint64_t tag,
                   std::span<const std::byte> data) {
  request.peer = peer;
  Line* line = line_to(peer);
  if (line == nullptr || data.size() > most_message) {
    request.bytes = 0;
    return fail(request, line == nullptr ? EHOSTUNREACH : EMSGSIZE);
  }
  line->link.send(request, tag, data);
  if (data.size() < least_kept_back) {
    flush(*line, peer);
  } else if (!kept_back_.has(peer)) {
    kept_back_.add(peer);
  }
}

void Sockets::flush() noexcept { write_kept_back(); }

/// A message that its peer expects needs not be announced: what the peer has said lies in the
/// kernel until it is read. Not in flush(), whose caller hears of nothing that comes.
bool Sockets::read_expectations() noexcept {
  bool moved = false;
  for (const int peer : kept_back_.all()) {
    Line& line = *lines_[static_cast<std::size_t>(peer)];
    Channel* first = line.streams.front().channel;
    if (first != nullptr && first->opened() && line.link.out.would_announce()) {
      first->note_readable(false);
      moved |= drive(*first);
    }
  }
  return moved;
}

bool Sockets::write_kept_back() noexcept {
  bool moved = false;
  for (const int peer : kept_back_.all()) {
    moved |= flush(*lines_[static_cast<std::size_t>(peer)], peer);
  }
  kept_back_.clear();
  return moved;
}

void Sockets::recv(MessageRequest& request, int peer, std::uint64_t tag,
                   std::span<std::byte> data) {
  request.peer = peer;
  Line* line = line_to(peer);
  if (line == nullptr) {
    request.bytes = 0;
    return fail(request, EHOSTUNREACH);
  }
  // A connection is the sender's to make.
  const Channel* first = line->streams.front().channel;
  line->link.in.recv(request, tag, data, first != nullptr && first->opened());
  flush(*line, peer);  // it may have asked for what was announced
}

std::optional<std::size_t> Sockets::probe(int peer, std::uint64_t tag) noexcept {
  const bool known = peer >= 0 && static_cast<std::size_t>(peer) < lines_.size() &&
                     lines_[static_cast<std::size_t>(peer)];
  return known ? lines_[static_cast<std::size_t>(peer)]->link.in.probe(tag) : std::nullopt;
}

/// Who has nothing any more is dropped here, and listed again when it is read from. So this looks
/// at those that have something, and at those that were read from since the last time.
std::optional<std::span<const int>> Sockets::unasked() noexcept {
  unasked_.remove_if([this](int peer) {
    Line& line = *lines_[static_cast<std::size_t>(peer)];
    line.listed = line.link.in.has_unasked();
    return !line.listed;
  });
  return unasked_.all();
}

void Sockets::note_reading(int peer) noexcept {
  Line& line = *lines_[static_cast<std::size_t>(peer)];
  if (!std::exchange(line.listed, true)) {
    unasked_.add(peer);
  }
}

void Sockets::forget(std::uint64_t communicator) noexcept {
  unexpected_.forget(communicator);
  for (std::size_t peer = 0; peer < lines_.size(); ++peer) {
    if (Line* line = lines_[peer].get()) {
      line->link.in.drop_forgotten();
      flush(*line, static_cast<int>(peer));  // the credit that it has given back
    }
  }
}

void Sockets::cancel(MessageRequest& request) noexcept {
  if (request.state != MessageRequest::State::posted) {
    return;
  }
  Line& line = *lines_[static_cast<std::size_t>(request.peer)];
  if (!line.link.cancel(request)) {
    return break_line(request.peer, ENOMEM);
  }
  flush(line, request.peer);
}

/// Connects where something waits to be sent.
void Sockets::want_streams(Line& line, int peer) noexcept {
  for (std::size_t at = 0; at < line.streams.size(); ++at) {
    Stream& stream = line.streams[at];
    if (stream.channel == nullptr && !stream.left_alone && !line.link.broken()) {
      attempt(line, peer, at);
    }
    if (!line.link.out.has_pieces()) {
      return;
    }
  }
}

void Sockets::attempt(Line& line, int peer, std::size_t stream) noexcept {
  const std::size_t rail = stream % mine_.rails.size();
  const StreamName name{.from = options_.rank, .to = peer, .stream = stream};
  ++line.streams[stream].attempts;
  int error = ENOMEM;
  try {
    const Contact contact = contacts_.of(peer).value();  // it was decoded before
    Descriptor socket = connect_to(mine_.rails[rail], contact.rails[rail]);
    if (socket.number() >= 0) {
      line.streams[stream].channel =
          &take_in(std::make_unique<Channel>(std::move(socket), name, *key_of(name)));
      return;
    }
    error = errno;
  } catch (const std::exception& failure) {
    log().warn("sockets: no connection to rank {}: {}", peer, failure.what());
  }
  line.streams[stream].left_alone = true;
  if (stream == 0) {
    break_line(peer, error);
  }
}

/// One that cannot have all that it takes is closed, and nothing knows of it: a channel that nobody
/// watches would never move.
Channel& Sockets::take_in(std::unique_ptr<Channel> made) {
  if (options_.encryption) {
    made->encrypt(options_.encryption);
  }
  Channel& channel = *channels_.emplace_back(std::move(made));
  try {
    watch(channel);
  } catch (...) {
    channels_.pop_back();
    throw;
  }
  enqueue(channel);
  return channel;
}

void Sockets::watch(Channel& channel) {
  // So that noting one never allocates: each of them is in a list at most once.
  ready_.reserve(channels_.size());
  moving_.reserve(channels_.size());
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &channel;
  need(::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, channel.descriptor(), &event) == 0,
       "the kernel watches no more sockets: ", std::strerror(errno),
       "; see sysctl fs.epoll.max_user_watches, and free memory");
}

/// A connection goes from epoll by being closed only when nobody else holds it, and a child of this
/// process may, for a moment or, if it was not made by fork(), for long. Its events would go on to
/// name a channel that is gone.
void Sockets::close(Channel& channel) noexcept {
  static_cast<void>(::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, channel.descriptor(), nullptr));
  channel.close();
  has_ended_ = true;
}

/// Writes what the kernel takes now. Streams take pieces in turns: the kernel has room for more of
/// one than a caller has under way who sends no faster than he receives.
bool Sockets::flush(Line& line, int peer) noexcept {
  const Outgoing first = line.link.broken() ? Outgoing{} : line.link.out.outgoing(0);
  if (first.bytes() > 0 || line.link.out.has_pieces()) {
    want_streams(line, peer);
  }
  bool moved = false;
  for (int turn = 0; turn < turns_of(line.streams.size()); ++turn) {
    bool any = false;
    for (const Stream& stream : line.streams) {
      Channel* channel = stream.channel;
      if (channel == nullptr || !channel->opened() || channel->blocked()) {
        continue;
      }
      const Moved written = channel->write();
      any |= written.any;
      if (written.error != 0) {
        end_stream(*channel, written.error);
        return true;
      }
    }
    moved |= any;
    if (!any) {
      break;
    }
  }
  for (const Stream& stream : line.streams) {
    Channel* channel = stream.channel;
    if (channel == nullptr || !channel->opened() || channel->blocked()) {
      look_often_ |= channel != nullptr;
    } else if (line.link.out.outgoing(channel->stream()).bytes() > 0) {
      enqueue(*channel);  // a call writes only so much
    }
  }
  return moved;
}

void Sockets::enqueue(Channel& channel) noexcept {
  if (!std::exchange(channel.queued, true)) {
    ready_.push_back(&channel);
  }
}

bool Sockets::progress() noexcept {
  // A send that ends by it is news: who hears of none may go to sleep.
  const bool heard = read_expectations();
  const bool wrote = write_kept_back();
  const bool directly = !channels_.empty() && channels_.size() <= most_read_directly;
  if (!directly || look_often_ || ++calls_ % calls_a_look == 0) {
    look_often_ = false;
    look();
  }
  if (directly) {
    for (const auto& channel : channels_) {
      const int peer = channel->peer();
      if (channel->opened() && lines_[static_cast<std::size_t>(peer)]->link.awaits_peer()) {
        channel->note_readable(false);
        enqueue(*channel);
      }
      look_often_ |= channel->blocked() || !channel->opened();
    }
  }
  return drive_ready() || wrote || heard;
}

/// Each channel that may have something to do, once.
bool Sockets::drive_ready() noexcept {
  bool moved = false;
  moving_.swap(ready_);
  // By index: a channel that is made meanwhile makes room for itself in the list.
  for (std::size_t at = 0; at < moving_.size(); ++at) {
    Channel* channel = moving_[at];
    channel->queued = false;
    if (channel->over()) {
      continue;
    }
    moved |= drive(*channel);
  }
  moving_.clear();
  sweep();
  return moved;
}

/// What is left for the next time stays listed.
bool Sockets::drive(Channel& channel) noexcept {
  const bool moved = move(channel);
  if (!channel.over() && channel.opened() && (channel.readable() || channel.stalled())) {
    enqueue(channel);
  }
  return moved;
}

bool Sockets::move(Channel& channel) noexcept {
  if (!channel.opened()) {
    return greet(channel);
  }
  bool moved = false;
  const int peer = channel.peer();
  if (channel.readable() || channel.stalled()) {
    note_reading(peer);
    const Moved read = channel.read(buffer_.span());
    moved = read.any;
    if (read.error != 0) {
      end_stream(channel, read.error);
      return true;
    }
  }
  // What was read may have made something to write, on any stream.
  return flush(*lines_[static_cast<std::size_t>(peer)], peer) || moved;
}

bool Sockets::greet(Channel& channel) noexcept {
  Channel::Progress progress;
  try {
    progress = channel.greet();
  } catch (const std::exception& failure) {
    log().warn("sockets: {}", failure.what());  // without random numbers there is no greeting
    progress.moved.error = EIO;
  }
  if (progress.moved.error != 0) {
    if (const char* why = channel.why_not_encrypted(); why != nullptr && !channel.strange()) {
      log().warn("sockets: who listens where rank {} should does not encrypt as this job does: {}",
                 channel.peer(), why);
    }
    end_attempt(channel, progress.moved.error);
    return true;
  }
  switch (progress.greeted) {
    case Greeted::not_yet:
      break;
    case Greeted::proved:
      decide(channel);
      break;
    case Greeted::stands:
      stand(channel);
      break;
    case Greeted::crossed:
      // The peer's own connection is on its way here, or stands already.
      lines_[static_cast<std::size_t>(channel.name().to)]->streams[channel.stream()].left_alone =
          true;
      end_attempt(channel, 0);
      break;
    case Greeted::wrong:
      if (!channel.strange()) {
        log().warn("sockets: who listens where rank {} should does not know this job's key",
                   channel.peer());
      }
      end_attempt(channel, ECONNREFUSED);
      break;
  }
  return progress.moved.any;
}

/// A peer has connected here. If this rank connects to it too, the lower one's connection stands:
/// one side alone decides, so both go by the same.
void Sockets::decide(Channel& channel) noexcept {
  const int peer = channel.peer();
  Line* line = nullptr;
  try {
    line = line_to(peer);
  } catch (const std::exception& failure) {
    log().warn("sockets: no room for rank {}: {}", peer, failure.what());
  }
  if (line == nullptr || line->link.broken() || channel.stream() >= line->streams.size()) {
    return end_attempt(channel, ECONNREFUSED);
  }
  Stream& stream = line->streams[channel.stream()];
  Channel* mine = stream.channel;
  const bool stands = mine == nullptr || (!mine->opened() && peer < options_.rank);
  channel.answer(stands);
  const Channel::Progress progress = channel.greet();
  if (progress.moved.error != 0 || channel.greeting_waits()) {
    return end_attempt(channel, ECONNRESET);  // a new connection takes one byte
  }
  if (!stands) {
    return end_attempt(channel, 0);
  }
  if (mine != nullptr) {
    stream.channel = nullptr;
    end_attempt(*mine, 0);
  }
  stand(channel);
}

void Sockets::stand(Channel& channel) noexcept {
  const int peer = channel.peer();
  Line& line = *lines_[static_cast<std::size_t>(peer)];
  line.streams[channel.stream()].channel = &channel;
  channel.open(line.link);
  enqueue(channel);
  flush(line, peer);
}

/// Of one that does not stand, for an error or, with 0, since another one does.
void Sockets::end_attempt(Channel& channel, int error) noexcept {
  const StreamName name = channel.name();
  const bool strange = channel.peer() != name.to || name.from != options_.rank;
  close(channel);
  if (strange) {
    return;  // who connected here tries again, or is nobody
  }
  Line& line = *lines_[static_cast<std::size_t>(name.to)];
  Stream& stream = line.streams[name.stream];
  if (stream.channel != &channel) {
    return;
  }
  stream.channel = nullptr;
  if (error == 0) {
    return;
  }
  log().debug("sockets: no connection to rank {}: {}", name.to, std::strerror(error));
  if (error == ECONNRESET && stream.attempts < most_attempts) {
    return attempt(line, name.to, name.stream);
  }
  stream.left_alone = true;
  if (name.stream == 0) {  // others only make it faster
    break_line(name.to, error);
  }
}

/// What the peer had sent before it went is read first, from all streams: of this one, too, for it
/// may be writing that has told of the end.
void Sockets::end_stream(Channel& channel, int error) noexcept {
  const int peer = channel.peer();
  Line& line = *lines_[static_cast<std::size_t>(peer)];
  note_reading(peer);
  for (const Stream& stream : line.streams) {
    Channel* one = stream.channel;
    if (one == nullptr || !one->opened()) {
      continue;
    }
    Moved moved{.any = true};
    for (int call = 0; call < most_last_reads && moved.any && moved.error == 0; ++call) {
      one->note_readable(true);
      moved = one->read(buffer_.span());
    }
  }
  log().debug("sockets: the connection to rank {} has ended: {}", peer, std::strerror(error));
  break_line(peer, error);
}

void Sockets::break_line(int peer, int error) noexcept {
  Line& line = *lines_[static_cast<std::size_t>(peer)];
  line.link.break_off(error);
  for (Stream& stream : line.streams) {
    if (Channel* channel = std::exchange(stream.channel, nullptr)) {
      close(*channel);
    }
  }
}

/// Asks epoll; whether it had anything.
bool Sockets::look() noexcept {
  std::array<epoll_event, events_a_look> events;
  const int count =
      ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), 0);
  bool any = false;
  for (int at = 0; at < count; ++at) {
    const epoll_event& event = events[static_cast<std::size_t>(at)];
    any = true;
    if (event.data.u64 < listeners_.size()) {
      accept_some(listeners_[event.data.u64]);
      continue;
    }
    auto& channel = *static_cast<Channel*>(event.data.ptr);
    if (channel.over()) {
      continue;
    }
    const bool hung_up = (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (hung_up || (event.events & EPOLLIN) != 0) {
      channel.note_readable(hung_up);
    }
    if ((event.events & EPOLLOUT) != 0) {
      channel.note_writable();
    }
    enqueue(channel);
  }
  if (others_wait_) {
    others_wait_ = false;
    for (const TcpListener& listener : listeners_) {
      accept_some(listener);
    }
  }
  return any;
}

void Sockets::accept_some(const TcpListener& listener) noexcept {
  for (;;) {
    const Time now = std::chrono::steady_clock::now();
    if (!make_room_for_strangers(now)) {
      others_wait_ = true;
      return;
    }
    Descriptor socket = accept_from(listener);
    if (socket.number() < 0) {
      // Without descriptors the connection waits in the kernel; one that has ended is none.
      others_wait_ |= errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (errno == EINTR || errno == ECONNABORTED) {
        continue;
      }
      return;
    }
    try {
      take_in(std::make_unique<Channel>(
          std::move(socket),
          [this](const StreamName& name) {
            return name.to == options_.rank ? key_of(name) : std::nullopt;
          },
          now));
    } catch (const std::exception& failure) {
      // And so are those behind it, if it is so: the kernel would tell of them only with the next
      // one that comes.
      log().warn("sockets: a connection is turned away: {}", failure.what());
    }
  }
}

/// Whoever has been silent for long makes way for others, and for these alone: a rank that is
/// stopped in the midst of its greeting comes back to it.
bool Sockets::make_room_for_strangers(Time now) noexcept {
  const auto strange = [](const auto& channel) { return channel->strange() && !channel->over(); };
  if (static_cast<std::size_t>(std::ranges::count_if(channels_, strange)) < most_strangers) {
    return true;
  }
  const auto oldest = std::ranges::find_if(channels_, strange);  // they are in order of arrival
  if (now - (*oldest)->since() < patience_with_strangers) {
    return false;
  }
  end_attempt(**oldest, ECONNRESET);
  return true;
}

/// Channels are taken out where nobody is in the midst of their list.
void Sockets::sweep() noexcept {
  if (!std::exchange(has_ended_, false)) {
    return;
  }
  std::erase_if(ready_, [](const Channel* channel) { return channel->over(); });
  std::erase_if(channels_, [](const auto& channel) { return channel->over(); });
}

// Events that are taken here stay noted in their channels. The call of progress() that comes before
// sleep moves these: either it is not in vain, or the kernel had no more of them, and tells anew
// when it has. Most events are of what was read before anybody asked epoll, so to drive for each
// would mean not to sleep here, but blindly for a fixed time.
NewsDescriptors::Next Sockets::next() noexcept {
  look();
  const auto stalls = [](const Channel* channel) { return channel->stalled(); };
  return others_wait_ || std::ranges::any_of(ready_, stalls) ? Next::look_later : Next::sleep;
}

}  // namespace sprat::comm::sockets
