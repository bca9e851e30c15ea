#include "comm/coordinator/rendezvous_member.hpp"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/log.hpp"
#include "comm/coordinator/farewells.hpp"
#include "comm/coordinator/survivors.hpp"
#include "comm/host/process_watch.hpp"

namespace sprat::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// The coordinator's clock decides when an exchange ends, since the coordinator knows who is late
/// and says so. This rank's own clock, which adds this much, only ends the wait for a coordinator
/// that does not answer.
constexpr milliseconds answer_grace{2'000};
constexpr std::size_t most_backlog = 4096;
/// What a leader shares is no longer than a frame, rounded up to pages.
constexpr std::size_t most_shared_bytes = max_frame_bytes + (std::size_t{64} << 10);

}  // namespace

Member::Member(int rank, int size, std::shared_ptr<ControlLoop> loop, Coordinator::Quorum quorum)
    : rank_(rank),
      gathering_(quorum == Coordinator::Quorum::survivors),
      loop_(std::move(loop)),
      standing_(size, Standing::present) {}

Member::~Member() {
  loop_->run([&] {
    handler_ = nullptr;
    for (auto& [rank, watch] : watches_) {
      watch->cancel();
    }
    watches_.clear();
    send_farewell();
  });
  if (client_) {
    client_->close();
  }
  loop_->run([this] { client_.reset(); });
}

void Member::say_farewell() noexcept {
  try {
    loop_->run([this] { send_farewell(); });
  } catch (const std::exception& error) {
    log().error("the others do not hear that this rank leaves: {}", error.what());
  }
}

/// On the loop. After a failure the others know already that the job has ended.
void Member::send_farewell() {
  {
    std::lock_guard lock(mutex_);
    said_farewell_ |= job_failed_;
  }
  if (client_ && !std::exchange(said_farewell_, true)) {
    ControlMessage farewell;
    farewell.kind = ControlMessage::Kind::farewell;
    farewell.rank = rank_;
    client_->send(farewell);
  }
}

std::vector<Blob> Member::exchange(Blob mine, std::string_view purpose,
                                   Clock::time_point deadline) {
  require(mine.size() <= max_exchange_bytes, "exchange of ", mine.size(), " bytes while ", purpose,
          "; all ranks together may give ", max_exchange_bytes);
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  const auto patience = std::clamp(left, milliseconds(0), longest_exchange);
  Part part{0, static_cast<std::uint64_t>(patience.count()), std::string(purpose), std::move(mine),
            host_};
  std::unique_lock lock(mutex_);
  const std::size_t expected = standing_.size();
  const std::uint64_t ordinal = part.ordinal = ++exchanges_;
  if (!failure_) {
    loop_->post([this, part = std::move(part)] { client_->send(part); });
    changed_.wait_until(lock, Clock::now() + patience + answer_grace,
                        [this] { return parts_ || failure_; });
  }
  if (failure_) {
    // The coordinator's own message begins with the purpose already.
    const std::string_view why = failure_->what();
    throw Error(failure_->code(),
                why.starts_with(text(purpose, ": ")) ? std::string(why) : text(purpose, ": ", why),
                failure_->rank());
  }
  if (!parts_) {
    const std::string complaint = text(purpose, ": the hub beside rank 0 did not answer within ",
                                       static_cast<double>(patience.count()) / 1e3, " s");
    lock.unlock();  // tell() takes it
    // The coordinator may have answered the others, who would then wait for this rank.
    ControlMessage message;
    message.kind = ControlMessage::Kind::failed;
    message.rank = rank_;
    message.code = static_cast<int>(ErrorCode::timeout);
    message.text = text("rank ", rank_, " gave up: ", complaint);
    tell(std::move(message));
    throw Error(ErrorCode::timeout, complaint, 0);
  }
  Parts parts = std::move(*parts_);
  parts_.reset();
  if (parts.ordinal != ordinal || parts.blobs.size() != expected) {
    throw Error(ErrorCode::internal, text(purpose, ": the hub answered exchange ", parts.ordinal,
                                          " instead of ", ordinal));
  }
  return std::move(parts.blobs);
}

void Member::listen(std::function<void(const ControlMessage&)> handler) {
  {
    std::lock_guard lock(mutex_);
    listens_ = true;
  }
  loop_->post([this, handler = std::move(handler)]() mutable {
    handler_ = std::move(handler);
    for (const ControlMessage& message : std::exchange(backlog_, {})) {
      dispatch(message);
    }
  });
}

void Member::tell(ControlMessage message) noexcept {
  try {
    if (message.kind == ControlMessage::Kind::failed && !note_failure(message)) {
      return;  // the job had failed for this rank before, and the coordinator knows
    }
    loop_->post([this, message = std::move(message)] {
      if (client_) {
        client_->send(message);
      }
    });
  } catch (const std::exception& error) {
    log().error("a control message was not sent: {}", error.what());
  }
}

void Member::watch(int rank, pid_t pid) {
  require(rank >= 0 && rank < size(), "watch(", rank, ") in a job of ", size(), " ranks");
  loop_->post([this, rank, pid] {
    watches_[rank] =
        ProcessWatch::start(loop_->io(), pid, [this, rank, pid] { process_ended(rank, pid); });
  });
}

void Member::process_ended(int rank, pid_t pid) {
  if (standing_[rank] != Standing::present) {
    return;
  }
  ControlMessage message;
  message.rank = rank;
  message.code = static_cast<int>(ErrorCode::lost_peer);
  message.text = text("its process ", pid, " ended");
  // After the coordinator has left in good order, farewells reach nobody. So the end of a process
  // counts as one: nobody can know any more whether it was a loss.
  message.kind = coordinator_gone_ && standing_[0] == Standing::left
                     ? ControlMessage::Kind::farewell
                     : ControlMessage::Kind::lost;
  if (message.kind == ControlMessage::Kind::lost && !coordinator_gone_) {
    client_->send(message);
  }
  take(std::move(message));
}

void Member::received(Frame frame) {
  if (auto* parts = std::get_if<Parts>(&frame)) {
    receive(std::move(*parts));
  } else if (const auto* place = std::get_if<PartsPlace>(&frame)) {
    receive(*place);
  } else if (std::holds_alternative<PartsTaken>(frame)) {
    shelf_.clear();
  } else if (auto* message = std::get_if<ControlMessage>(&frame)) {
    receive(std::move(*message));
  } else if (!std::holds_alternative<Welcome>(frame)) {  // it comes first, and was read before
    log().warn("the hub sent a frame of kind {} after joining", frame.index());
  }
}

/// Others of this host wait for what it shares, so they are served first. A coordinator that ends
/// gives parts again to whoever has not said in time that it has them.
void Member::receive(Parts parts) {
  if (parts.ordinal <= last_parts_) {
    return;
  }
  last_parts_ = parts.ordinal;
  if (const auto place = shelf_.put(parts)) {
    client_->send(*place);
  }
  std::lock_guard lock(mutex_);
  if (std::exchange(gathering_, false)) {
    renumber(parts);
  }
  parts_ = std::move(parts);
  changed_.notify_all();
}

/// Asks this rank to share what comes next, or says where another one does.
void Member::receive(const PartsPlace& place) {
  if (place.descriptor < 0) {
    return shelf_.expect();
  }
  std::optional<Parts> parts = PartsShelf::read(place);
  client_->send(PartsTaken{place.ordinal, static_cast<std::uint8_t>(parts ? 1 : 0)});
  if (parts) {
    receive(std::move(*parts));
  }
}

/// Whoever listens hears of each rank that leaves by itself, though the coordinator tells of many
/// at once.
void Member::receive(ControlMessage message) {
  if (message.kind != ControlMessage::Kind::farewell) {
    return take(std::move(message));
  }
  for (const int rank : departing(message, size())) {
    if (rank != rank_) {
      ControlMessage one;
      one.kind = ControlMessage::Kind::farewell;
      one.rank = rank;
      take(std::move(one));
    }
  }
}

/// The coordinator renumbers at the same point of what it says: frames after this one use the new
/// numbers.
void Member::renumber(const Parts& testimonies) {
  const std::vector<int> kept = survivors(testimonies.blobs);
  const auto mine = std::ranges::find(kept, rank_);
  rank_ = mine == kept.end() ? -1 : static_cast<int>(mine - kept.begin());
  standing_.assign(kept.size(), Standing::present);
}

void Member::ended(std::string_view how) {
  coordinator_gone_ = true;
  // Rank 0's farewell may have come before its connection ended: that is no loss.
  if (standing_[0] != Standing::present) {
    return;
  }
  ControlMessage message;
  message.kind = ControlMessage::Kind::lost;
  message.rank = 0;
  message.code = static_cast<int>(ErrorCode::lost_peer);
  message.text = how;
  take(std::move(message));
}

void Member::take(ControlMessage message) {
  using Kind = ControlMessage::Kind;
  const bool leaves = message.kind == Kind::lost || message.kind == Kind::farewell;
  if (leaves) {
    if (message.rank < 0 || message.rank >= size()) {
      return;
    }
    if (standing_[message.rank] != Standing::present) {
      return;  // a process watch or another rank has told it before
    }
    standing_[message.rank] = message.kind == Kind::lost ? Standing::lost : Standing::left;
    if (const auto watch = watches_.extract(message.rank)) {
      watch.mapped()->cancel();
    }
  }
  if (message.kind == Kind::lost || message.kind == Kind::failed) {
    note_failure(message);
  }
  dispatch(message);
}

void Member::dispatch(const ControlMessage& message) noexcept {
  try {
    if (handler_) {
      handler_(message);
    } else if (backlog_.size() < most_backlog) {
      backlog_.push_back(message);
    }
  } catch (const std::exception& error) {
    log().error("a control message was not handled: {}", error.what());
  }
}

// While ranks join, a loss fails the job: each waits for all others. Later it fails what the lost
// rank took part in, unless that is the rank beside which the coordinator lived.
bool Member::note_failure(const ControlMessage& message) {
  const bool lost = message.kind == ControlMessage::Kind::lost;
  std::lock_guard lock(mutex_);
  if (!failure_) {
    failure_.emplace(static_cast<ErrorCode>(message.code),
                     lost ? text("lost rank ", message.rank, ": ", message.text) : message.text,
                     message.rank);
  }
  changed_.notify_all();
  const bool of_job = !lost || message.rank == 0 || !listens_;
  return of_job && !std::exchange(job_failed_, true);
}

std::optional<PartsPlace> PartsShelf::put(const Parts& parts) {
  if (!std::exchange(expected_, false)) {
    return std::nullopt;
  }
  PartsPlace place;
  place.ordinal = parts.ordinal;
  try {
    const Blob bytes = encode_unpacked(parts);
    segment_ = std::make_unique<Segment>(bytes.size(), Segment::Pages::as_touched, "sprat-parts");
    std::ranges::copy(bytes, segment_->data());
    const MemoryRef ref = segment_->ref();
    place.pid = getpid();
    place.descriptor = ref.fd;
    place.inode = ref.inode;
    place.bytes = ref.segment_bytes;
    place.digest = XXH3_64bits(segment_->data(), segment_->bytes());
  } catch (const std::exception& error) {
    log().info("what ranks tell each other goes to each rank of this host: {}", error.what());
  }
  return place;
}

std::optional<Parts> PartsShelf::read(const PartsPlace& place) {
  MemoryRef ref;
  ref.kind = MemoryRef::Kind::segment;
  ref.fd = place.descriptor;
  ref.inode = place.inode;
  ref.segment_bytes = place.bytes;
  const auto mapping = place.bytes <= most_shared_bytes
                           ? PeerMapping::open(place.pid, ref, PeerMapping::Access::read)
                           : nullptr;
  if (!mapping || XXH3_64bits(mapping->data(), mapping->bytes()) != place.digest) {
    return std::nullopt;
  }
  auto parts = decode_unpacked({mapping->data(), mapping->bytes()});
  const bool meant = parts && parts->ordinal == place.ordinal;
  return meant ? std::move(parts) : std::nullopt;
}

}  // namespace sprat::comm
