#include "io/lustre/restore_ahead.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/hash.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

// States are polled seldom where nothing happens: each question is a request to the metadata
// server.
constexpr RestoreAhead::Time first_wait = 500ms, longest_wait = 10s;
// So many answers without anything under way, and the request is taken for lost. The coordinator
// may need a moment to list what it was asked for.
constexpr int patience = 3;
constexpr int most_attempts = 3;
// As many as may be outstanding in the job, so that one round sees all of them.
constexpr std::size_t most_questions = 1000;

/// Errors of a request that say that it will never be taken.
bool needs_reads(int error) {
  return error == EPERM || error == EACCES || error == ENOTTY || error == EOPNOTSUPP ||
         error == ENOSYS || error == EINVAL;
}

}  // namespace

int restoring_host(std::uint64_t seed, std::uint32_t file, int hosts) {
  const std::uint64_t key = mix_bits(seed + golden_step * (std::uint64_t{file} + 1));
  return static_cast<int>(key % static_cast<std::uint64_t>(hosts));
}

RestoreAhead::RestoreAhead(std::vector<ReleasedFile> files, const RestoreOptions& options)
    : options_(options), wait_(first_wait), wakes_at_(files.empty() ? Time::max() : Time::min()) {
  require(options.hosts > 0 && options.host >= 0 && options.host < options.hosts, "host ",
          options.host, " of ", options.hosts, " restores files; it must be below the number");
  most_of_this_host_ =
      std::max<std::size_t>(1, options.most_outstanding / static_cast<std::size_t>(options.hosts));
  for (const ReleasedFile& file : files) {
    require(entries_.empty() || entries_.back().file.first_use <= file.first_use,
            "released files come in the order of their first use, and file ", file.file,
            " comes late");
    require(!places_.contains(file.file), "file ", file.file, " is released twice in one list");
    append(file);
  }
  widen();
}

void RestoreAhead::append(const ReleasedFile& file) {
  places_[file.file] = entries_.size();
  last_use_ = std::max(last_use_, file.first_use);
  entries_.push_back(
      {.file = file,
       .ours = restoring_host(options_.seed, file.file, options_.hosts) == options_.host});
}

void RestoreAhead::add(const ReleasedFile& file) {
  const auto known = places_.find(file.file);
  if (known != places_.end()) {
    RestoredFile& entry = entries_[known->second];
    if (entry.state != State::resident) {
      return;
    }
    // It keeps its place, which the window has reached.
    entry = {.file = {.file = file.file, .bytes = entry.file.bytes, .first_use = file.first_use},
             .ours = entry.ours,
             .late = true};
    enter_window(known->second);
    return;
  }
  const bool late = file.first_use < last_use_;
  append(file);
  if (late) {
    entries_.back().late = true;
    enter_window(entries_.size() - 1);
  }
  widen();
}

void RestoreAhead::enter_window(std::size_t index) {
  if (entries_[index].ours) {
    waiting_.insert(turn_of(index));
  } else {
    watched_.insert(index);
  }
  if (entries_[index].late) {
    // Somebody waits for it by now: the next question is not put off to when others are due.
    wait_ = first_wait;
    poll_at_ = Time::min();
  }
  wakes_at_ = Time::min();
}

void RestoreAhead::advance(std::uint64_t position) {
  position_ = std::max(position_, position);
  widen();
}

/// The window begins with the first file that is still to come. What the reader has passed is in
/// the sets until it is back, since reads wait for it.
void RestoreAhead::widen() {
  const auto take = [this] {
    if (!entries_[window_end_].late) {
      enter_window(window_end_);
    }
    ++window_end_;
  };
  for (; cursor_ < entries_.size() && entries_[cursor_].file.first_use < position_; ++cursor_) {
    if (cursor_ == window_end_) {
      take();  // passed before the window came to it
    } else {
      window_bytes_ -= entries_[cursor_].file.bytes;
    }
  }
  while (window_end_ < entries_.size() && (window_end_ - cursor_ < options_.horizon_files ||
                                           window_bytes_ < options_.horizon_bytes)) {
    window_bytes_ += entries_[window_end_].file.bytes;
    take();
  }
}

RestoreStep RestoreAhead::next(Time now, std::uint64_t free_bytes) {
  RestoreStep step;
  // Requests first: their answers are looked for from the next turn on.
  begin(step, free_bytes, now);
  poll(step, now);
  plan_waking(now);
  return step;
}

void RestoreAhead::begin(RestoreStep& step, std::uint64_t free_bytes, Time now) {
  waits_for_space_ = false;
  const std::size_t most_at_once =
      by_first_byte_ ? options_.first_byte_threads : most_files_of_a_restore;
  const std::size_t most_open = by_first_byte_
                                    ? std::min(most_of_this_host_, options_.first_byte_threads)
                                    : most_of_this_host_;
  std::vector<std::uint32_t>& begun = by_first_byte_ ? step.first_byte : step.restore;
  while (now >= hold_until_ && !waiting_.empty() && outstanding_ < most_open &&
         begun.size() < most_at_once) {
    const std::size_t index = waiting_.begin()->second;
    RestoredFile& entry = entries_[index];
    // A restore into a full file system fails, and leaves less room for those under way.
    if (outstanding_bytes_ + entry.file.bytes + options_.keep_free_bytes > free_bytes) {
      waits_for_space_ = true;
      break;
    }
    waiting_.erase(waiting_.begin());
    watched_.insert(index);
    entry.state = by_first_byte_ ? State::reading : State::asked;
    entry.quiet = 0;
    ++outstanding_;
    outstanding_bytes_ += entry.file.bytes;
    begun.push_back(entry.file.file);
  }
  if (!begun.empty()) {
    wait_ = first_wait;
    poll_at_ = std::min(std::max(poll_at_, now), now + first_wait);
  }
}

void RestoreAhead::poll(RestoreStep& step, Time now) {
  if (watched_.empty() || now < poll_at_) {
    return;
  }
  for (const std::size_t index : watched_) {
    // The thread that reads a first byte tells by itself when the file is back.
    if (entries_[index].state != State::reading && step.ask_state.size() < most_questions) {
      step.ask_state.push_back(entries_[index].file.file);
    }
  }
  // What was begun in this very step has not reached the coordinator.
  std::erase_if(step.ask_state, [&step](std::uint32_t file) {
    return std::ranges::find(step.restore, file) != step.restore.end();
  });
  poll_at_ = now + wait_;
  wait_ = std::min(2 * wait_, longest_wait);
}

void RestoreAhead::plan_waking(Time now) {
  wakes_at_ = watched_.empty() ? Time::max() : poll_at_;
  if (waiting_.empty()) {
    return;
  }
  const std::size_t most_open = by_first_byte_
                                    ? std::min(most_of_this_host_, options_.first_byte_threads)
                                    : most_of_this_host_;
  if (now < hold_until_) {
    wakes_at_ = std::min(wakes_at_, hold_until_);
  } else if (waits_for_space_) {
    wakes_at_ = std::min(wakes_at_, now + longest_wait);
  } else if (outstanding_ < most_open) {
    wakes_at_ = now;  // one request was full, and there is more
  }
}

bool RestoreAhead::is_open(std::uint32_t file, std::size_t& index) const {
  const auto place = places_.find(file);
  if (place == places_.end()) {
    return false;
  }
  index = place->second;
  const State state = entries_[index].state;
  return state != State::resident && state != State::lost;
}

void RestoreAhead::told(std::uint32_t file, const HsmState& state, Time now) {
  std::size_t index = 0;
  if (!is_open(file, index)) {
    return;
  }
  RestoredFile& entry = entries_[index];
  if (!state.released()) {
    end(index, State::resident, now);
  } else if (state.lost()) {
    lost_.push_back({file, text("the archive has lost it: ", hsm_text(state))});
    end(index, State::lost, now);
  } else if (state.under_way()) {
    entry.quiet = 0;
  } else if (++entry.quiet >= patience) {
    // Another host may have died with its share; what the reader needs now is asked for here.
    const bool due = entry.file.first_use <= position_;
    if (entry.state == State::asked) {
      try_again(index, "no restore is under way though it was asked for", now);
    } else if (!entry.ours && due) {
      entry.ours = true;
      watched_.erase(index);
      waiting_.insert(turn_of(index));
      wakes_at_ = now;
    }
  }
}

void RestoreAhead::refused(std::span<const std::uint32_t> files, int error, Time now) {
  const bool for_ever = needs_reads(error);
  by_first_byte_ = by_first_byte_ || for_ever;
  for (const std::uint32_t file : files) {
    std::size_t index = 0;
    if (!is_open(file, index) || entries_[index].state != State::asked) {
      continue;
    }
    // A file is not to blame for a system without such requests.
    if (for_ever) {
      put_back(index, now);
    } else {
      try_again(index, text("the request was refused: ", std::strerror(error)), now);
    }
  }
  if (for_ever) {
    hold_until_ = now;
    wakes_at_ = now;
  }
}

void RestoreAhead::first_byte_read(std::uint32_t file, int error, Time now) {
  std::size_t index = 0;
  if (!is_open(file, index) || entries_[index].state != State::reading) {
    return;
  }
  if (error == 0) {
    end(index, State::resident, now);
  } else {
    try_again(index, text("reading its first byte failed: ", std::strerror(error)), now);
  }
}

/// Takes a file off the lists for good.
void RestoreAhead::end(std::size_t index, State state, Time now) {
  RestoredFile& entry = entries_[index];
  if (entry.state == State::asked || entry.state == State::reading) {
    --outstanding_;
    outstanding_bytes_ -= entry.file.bytes;
  }
  restored_bytes_ += state == State::resident ? entry.file.bytes : 0;
  entry.state = state;
  watched_.erase(index);
  waiting_.erase(turn_of(index));
  ended_.push_back({.file = entry.file.file,
                    .lost = state == State::lost,
                    .why = state == State::lost ? lost_.back().why : std::string()});
  // One is back, so others may be: the next question comes soon.
  wait_ = first_wait;
  poll_at_ = std::min(poll_at_, now + first_wait);
  wakes_at_ = now;
}

void RestoreAhead::try_again(std::size_t index, const std::string& why, Time now) {
  RestoredFile& entry = entries_[index];
  if (++entry.attempts >= most_attempts) {
    lost_.push_back({entry.file.file, text(why, ", ", entry.attempts, " times")});
    end(index, State::lost, now);
    return;
  }
  put_back(index, now);
}

/// To those that are not asked for, after a pause.
void RestoreAhead::put_back(std::size_t index, Time now) {
  RestoredFile& entry = entries_[index];
  --outstanding_;
  outstanding_bytes_ -= entry.file.bytes;
  entry.state = State::released;
  watched_.erase(index);
  waiting_.insert(turn_of(index));
  hold_until_ = now + wait_;
  wakes_at_ = std::min(wakes_at_, hold_until_);
}

bool RestoreAhead::resident(std::uint32_t file) const {
  const auto place = places_.find(file);
  return place == places_.end() || entries_[place->second].state == State::resident;
}

RestoreReport RestoreAhead::report() const {
  RestoreReport report{.outstanding = outstanding_,
                       .restored_bytes = restored_bytes_,
                       .waits_for_space = waits_for_space_,
                       .by_first_byte = by_first_byte_,
                       .lost = lost_};
  for (const RestoredFile& entry : entries_) {
    const bool left = entry.state != State::resident && entry.state != State::lost;
    report.left_files += left ? 1 : 0;
    report.left_bytes += left ? entry.file.bytes : 0;
  }
  return report;
}

}  // namespace sprat::io
