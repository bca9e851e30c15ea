// Stores and loads as one thread carries them out: loads first, since somebody computes towards
// them, else in the order they came; a piece at a time, so that one that is given up ends soon.
#include "io/tier.hpp"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/thread.hpp"

namespace sprat::io {
namespace {

/// Slots begin and end at pages, as direct and mapped access to files want it.
constexpr std::size_t page_bytes = 4096;
/// Has a checksum of its own, which is taken while the piece is still in the cache.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;
/// That are read from a disk while one is checked.
constexpr std::size_t pieces_ahead = 2;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double megabytes_a_second(std::size_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / 1e6 / seconds : 0;
}

using Accepts = bool (*)(const TierKind&);

std::unique_ptr<Tier> open_among(std::string_view name, const TierLimits& limits, Accepts accepts) {
  const std::size_t colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  const std::string place(colon == std::string_view::npos ? "" : name.substr(colon + 1));
  std::string known;
  for (const TierKind* one : all_tier_kinds()) {
    if (!accepts(*one)) {
      continue;
    }
    if (kind == one->name) {
      return std::make_unique<Tier>(one->open(place, limits), limits);
    }
    known += text(known.empty() ? "" : ", ", one->name);
  }
  throw Error(ErrorCode::invalid_argument,
              text("there is no tier \"", name, "\"; there are: ", known,
                   "; a file's folder follows a colon, as in file:/local/scratch"));
}

}  // namespace

std::unique_ptr<Tier> open_tier(std::string_view name, const TierLimits& limits) {
  return open_among(name, limits, [](const TierKind& kind) { return !kind.for_tests; });
}

std::unique_ptr<Tier> open_any_tier(std::string_view name, const TierLimits& limits) {
  return open_among(name, limits, [](const TierKind&) { return true; });
}

Tier::Tier(std::unique_ptr<TierPlace> place, TierLimits limits)
    : place_(std::move(place)), limits_(limits), space_(limits.held_bytes) {}

Tier::~Tier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stores_.clear();
    loads_.clear();
  }
  work_.notify_all();
  if (worker_.joinable()) {
    worker_.join();
  }
}

StoredCopy& Tier::at(Ticket ticket) {
  const auto found = stored_.find(ticket.number);
  require(found != stored_.end(), "tier ", place_->name(), " holds nothing under ticket ",
          ticket.number, "; it was forgotten, or another tier's");
  return found->second;
}

const StoredCopy& Tier::at(Ticket ticket) const { return const_cast<Tier*>(this)->at(ticket); }

std::optional<Ticket> Tier::store(std::span<const std::byte> from, std::string key) {
  const std::size_t room = (from.size() + page_bytes - 1) / page_bytes * page_bytes;
  require(room <= limits_.held_bytes, "\"", key, "\" takes ", room, " bytes of tier ",
          place_->name(), ", which may hold ", limits_.held_bytes,
          " in all; allow it more, or keep this in memory");
  start_thread_once();
  const std::lock_guard lock(mutex_);
  if (storing_bytes_ > 0 && storing_bytes_ + from.size() > limits_.in_flight_bytes) {
    return std::nullopt;
  }
  const std::optional<std::uint64_t> offset = space_.take(room);
  if (!offset) {
    return std::nullopt;
  }
  const std::uint64_t number = next_++;
  stored_.emplace(number, StoredCopy{.key = std::move(key),
                                     .offset = *offset,
                                     .room = room,
                                     .bytes = from.size(),
                                     .from = from,
                                     .into = {},
                                     .checksums = {},
                                     .error = {}});
  stores_.push_back(number);
  storing_bytes_ += from.size();
  traffic_.held_bytes += room;
  traffic_.most_held_bytes = std::max(traffic_.most_held_bytes, traffic_.held_bytes);
  work_.notify_one();
  return Ticket{number};
}

bool Tier::load(Ticket ticket, std::span<std::byte> into) {
  const std::lock_guard lock(mutex_);
  StoredCopy& stored = at(ticket);
  require(stored.state == StoredCopy::State::stored, "\"", stored.key,
          "\" cannot be loaded from tier ", place_->name(),
          " while another transfer of it runs or after its store has failed; ",
          "wait for done() first");
  require(into.size() == stored.bytes, "\"", stored.key, "\" has ", stored.bytes, " bytes in tier ",
          place_->name(), ", but is to be loaded into ", into.size());
  if (loading_bytes_ > 0 && loading_bytes_ + into.size() > limits_.in_flight_bytes) {
    return false;
  }
  stored.state = StoredCopy::State::loading;
  stored.into = into;
  stored.error.clear();
  loads_.push_back(ticket.number);
  loading_bytes_ += into.size();
  work_.notify_one();
  return true;
}

bool Tier::ended(const StoredCopy& stored) const {
  return stored.state == StoredCopy::State::stored || stored.state == StoredCopy::State::failed;
}

bool Tier::done(Ticket ticket) { return wait(ticket, std::chrono::milliseconds(0)); }

bool Tier::wait(Ticket ticket, std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  const StoredCopy& stored = at(ticket);
  if (!ended(stored) && longest.count() > 0) {
    changed_.wait_for(lock, longest, [&] { return ended(stored); });
  }
  need(stored.error.empty(), stored.error);
  return ended(stored);
}

void Tier::forget(Ticket ticket) noexcept {
  std::unique_lock lock(mutex_);
  const auto found = stored_.find(ticket.number);
  if (found == stored_.end()) {
    return;
  }
  StoredCopy& stored = found->second;
  if (running_ == ticket.number) {
    stored.given_up = true;
    changed_.wait(lock, [&] { return running_ != ticket.number; });  // at most one piece
  }
  if (stored.state == StoredCopy::State::storing) {
    std::erase(stores_, ticket.number);
    storing_bytes_ -= stored.bytes;
  }
  if (stored.state == StoredCopy::State::loading) {
    std::erase(loads_, ticket.number);
    loading_bytes_ -= stored.bytes;
  }
  traffic_.held_bytes -= stored.room;
  space_.give(stored.offset, stored.room);
  stored_.erase(found);
}

TierTraffic Tier::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

std::string Tier::describe(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  const StoredCopy& stored = at(ticket);
  const bool loads = !stored.into.empty();
  const TierTraffic& all = traffic_;
  return text("the ", loads ? "load" : "store", " of \"", stored.key, "\" (", stored.bytes,
              " bytes) ", loads ? "from" : "in", " tier ", place_->name(), ", which has stored ",
              all.stored_bytes, " bytes at ",
              megabytes_a_second(all.stored_bytes, all.store_seconds), " MB/s and loaded ",
              all.loaded_bytes, " bytes at ",
              megabytes_a_second(all.loaded_bytes, all.load_seconds), " MB/s");
}

/// With the first store: a tier that is used for arrays alone needs no thread.
void Tier::start_thread_once() {
  if (!worker_.joinable()) {
    worker_ = start_thread("the thread of a tier", [this] { run(); });
  }
}

void Tier::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return stopping_ || !loads_.empty() || !stores_.empty(); });
    if (stopping_) {
      return;
    }
    std::deque<std::uint64_t>& queue = loads_.empty() ? stores_ : loads_;
    const std::uint64_t number = queue.front();
    queue.pop_front();
    running_ = number;
    lock.unlock();
    transfer(number);
    lock.lock();
    running_ = 0;
    changed_.notify_all();
  }
}

/// The entry stays where it is: forget() waits until it is not the running one.
void Tier::transfer(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  StoredCopy& stored = stored_.at(number);
  const bool stores = stored.state == StoredCopy::State::storing;
  lock.unlock();
  const auto begin = Clock::now();
  std::string error;
  try {
    stores ? copy_out(stored) : copy_back(stored);
  } catch (const std::exception& failure) {
    error =
        text("cannot ", stores ? "store" : "load", " \"", stored.key, "\", ", stored.bytes,
             " bytes, ", stores ? "in" : "from", " tier ", place_->name(), ": ", failure.what());
  }
  const double seconds = seconds_since(begin);
  lock.lock();
  if (error.empty() && !stored.given_up) {
    (stores ? traffic_.stored_bytes : traffic_.loaded_bytes) += stored.bytes;
  }
  (stores ? traffic_.store_seconds : traffic_.load_seconds) += seconds;
  (stores ? storing_bytes_ : loading_bytes_) -= stored.bytes;
  stored.state = stores && !error.empty() ? StoredCopy::State::failed : StoredCopy::State::stored;
  stored.error = std::move(error);
}

bool Tier::given_up(const StoredCopy& stored) const {
  const std::lock_guard lock(mutex_);
  return stored.given_up || stopping_;
}

void Tier::copy_out(StoredCopy& stored) {
  // Room is made ahead of the bytes, so a full disk fails here with a reason, whatever the file
  // system does with writes later.
  const std::uint64_t end = stored.offset + stored.room;
  if (end > reserved_) {
    place_->reserve(end);
    reserved_ = end;
  }
  for (std::size_t at = 0; at < stored.bytes && !given_up(stored); at += piece_bytes) {
    const auto piece = stored.from.subspan(at, std::min(piece_bytes, stored.bytes - at));
    stored.checksums.push_back(XXH3_64bits(piece.data(), piece.size()));
    place_->write(stored.offset + at, piece);
  }
  settle(stored);
}

void Tier::copy_back(StoredCopy& stored) {
  std::size_t announced = 0;
  for (std::size_t at = 0; at < stored.bytes && !given_up(stored); at += piece_bytes) {
    const std::size_t soon = std::min(stored.bytes, at + (1 + pieces_ahead) * piece_bytes);
    if (soon > announced) {
      place_->read_ahead(stored.offset + announced, soon - announced);
      announced = soon;
    }
    const auto piece = stored.into.subspan(at, std::min(piece_bytes, stored.bytes - at));
    place_->read(stored.offset + at, piece);
    need(XXH3_64bits(piece.data(), piece.size()) == stored.checksums[at / piece_bytes],
         "its bytes from ", at, " on are not those that were stored; the disk or its memory is ",
         "at fault: use another one");
  }
  settle(stored);
}

void Tier::settle(const StoredCopy& stored) {
  if (stored.bytes > 0 && !given_up(stored)) {
    place_->settle(stored.offset, stored.bytes);
  }
}

}  // namespace sprat::io
