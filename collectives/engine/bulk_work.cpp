#include "collectives/engine/bulk_work.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "collectives/engine/copy.hpp"
#include "collectives/engine/stall_watch.hpp"

namespace sprat::collectives {
namespace {

// What is fetched of other processes at a time, of all sources and of each: little enough to stay
// in the second-level cache until it is reduced.
constexpr std::size_t room_bytes = 128 << 10, least_room_bytes = 16 << 10;
constexpr std::size_t max_element_bytes = 8;

}  // namespace

[[gnu::hot]] void BulkWork::set_copy(const Origin& from, const Target& to) {
  state_ = State::set;
  reduces_ = false;
  from_ = from;
  to_ = to;
}

[[gnu::hot]] void BulkWork::clear_contributions() {
  terms_.clear();
  fetched_.clear();
}

[[gnu::hot]] void BulkWork::add(const Contribution& contribution) {
  if (contribution.source.foreign_rank >= 0) {
    fetched_.push_back({terms_.size(), contribution.source, contribution.element_bytes});
  }
  terms_.push_back({contribution.source.data, contribution.covers, contribution.partial});
}

[[gnu::hot]] std::size_t BulkWork::set_reduction(const Arithmetic& arithmetic, std::byte* to,
                                                 std::size_t count) {
  if (!fetched_.empty()) {
    const std::size_t each =
        std::max(room_bytes / fetched_.size(), least_room_bytes) / max_element_bytes;
    count = std::min(count, each);
    room_each_ = each * max_element_bytes;
    room_.resize(fetched_.size() * room_each_);
  }
  state_ = State::set;
  reduces_ = true;
  arithmetic_ = arithmetic;
  to_.data = to;
  count_ = count;
  return count;
}

// What goes wrong is kept for the token's holder: only the driver knows whose call it is.
[[gnu::hot]] void BulkWork::run() noexcept {
  context_.wait_policy().point();
  try {
    if (reduces_) {
      run_reduction();
    } else {
      run_copy();
    }
  } catch (...) {
    error_ = std::current_exception();
  }
  state_ = State::over;
}

[[gnu::hot]] void BulkWork::collect() {
  state_ = State::none;
  if (error_) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void BulkWork::fetch(const Origin& source, std::byte* to, std::size_t bytes) const {
  if (!context_.read(source.foreign_rank, source.data, to, bytes)) {
    throw Unmapped{source.foreign_rank, errno};
  }
}

// In place, a rank's own block lies where it is to go.
void BulkWork::run_copy() {
  if (from_.foreign_rank >= 0) {
    fetch(from_, to_.data, to_.bytes);
  } else if (from_.data != to_.data && to_.bytes > 0) {
    copy(to_.data, from_.data, to_.bytes, to_.past_cache);
  }
}

// The kernels read memory of this process only, so terms of other processes are fetched first, into
// room that stays in the cache until they are reduced.
[[gnu::hot]] void BulkWork::run_reduction() {
  std::byte* room = room_.data();
  for (const Fetched& one : fetched_) {
    fetch(one.source, room, count_ * one.element_bytes);
    terms_[one.term].data = room;
    room += room_each_;
  }
  reduce(arithmetic_, terms_, to_.data, count_);
}

}  // namespace sprat::collectives
