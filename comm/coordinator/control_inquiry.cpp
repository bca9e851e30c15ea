#include "comm/coordinator/control_inquiry.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"
#include "comm/base/rank_ranges.hpp"

namespace sprat::comm {
namespace {

/// A signature for people: as text if it is text, else in hexadecimal.
std::string readable(const Blob& signature) {
  const bool is_text = std::ranges::all_of(signature, [](std::byte byte) {
    return std::to_integer<int>(byte) >= 0x20 && std::to_integer<int>(byte) != 0x7f;
  });
  std::string out;
  for (const std::byte byte : signature) {
    const auto value = std::to_integer<unsigned>(byte);
    out += is_text ? std::string(1, static_cast<char>(value)) : fmt::format("{:02x}", value);
  }
  return out;
}

/// What a list of ranks takes is said in so many bytes.
constexpr std::size_t length_bytes = 4;
/// Few bytes may name many ranks, and memory is made for each.
constexpr int most_ranks_said = 1 << 22;

/// As what can be looked up.
std::string key_of(const Blob& signature) {
  return {reinterpret_cast<const char*>(signature.data()), signature.size()};
}

}  // namespace

Inquiry::Inquiry(std::uint64_t comm, std::uint64_t sequence, std::vector<int> members, int size)
    : members_(std::move(members)) {
  if (members_.empty()) {
    members_.resize(static_cast<std::size_t>(size));
    std::iota(members_.begin(), members_.end(), 0);
  }
  answers_.resize(members_.size());
  verdict_.kind = ControlMessage::Kind::verdict;
  verdict_.comm = comm;
  verdict_.sequence = sequence;
}

/// Null if it is no member: nobody waits for it.
Inquiry::RankAnswer* Inquiry::answer_of(int rank) {
  const std::size_t place = place_of(rank);
  return place == members_.size() ? nullptr : &answers_[place];
}

/// As many as there are members if it is none.
std::size_t Inquiry::place_of(int rank) const {
  const auto found = std::ranges::lower_bound(members_, rank);
  return found == members_.end() || *found != rank
             ? members_.size()
             : static_cast<std::size_t>(found - members_.begin());
}

std::vector<int> Inquiry::asked(int rank, Blob signature, const std::vector<bool>& gone, Time now) {
  RankAnswer* const asker = answer_of(rank);
  std::vector<int> queried;
  if (asker == nullptr) {
    return queried;
  }
  if (!open_) {
    open_ = true;
    opened_ = now;
    askers_.clear();
    due_ = {};
    for (std::size_t at = 0; at < members_.size(); ++at) {
      const int other = members_[at];
      RankAnswer& answer = answers_[at];
      // What a rank has called does not change, so only other answers are asked for again.
      if (answer.state != State::called) {
        answer = {};
      }
      answer.heard = false;
      answer.awaited = !gone[static_cast<std::size_t>(other)];
      due_.unheard += answer.awaited ? 1 : 0;
      due_.unknown += answer.awaited && answer.state == State::unknown ? 1 : 0;
      if (answer.awaited && other != rank) {
        queried.push_back(other);
      }
    }
  }
  answered(rank, 0, std::move(signature));
  if (std::ranges::find(askers_, rank) == askers_.end()) {
    askers_.push_back(rank);
  }
  return queried;
}

bool Inquiry::still_answers(int rank, const Blob& signature, Time now) const {
  const auto found = call_by_signature_.find(key_of(signature));
  const std::size_t place = place_of(rank);
  if (open_ || found == call_by_signature_.end() || place == members_.size()) {
    return false;
  }
  const RankAnswer& answer = answers_[place];
  // A mismatch is final; a list of late ranks is soon out of date.
  return answer.state == State::called && answer.call == found->second &&
         (mismatch() || now - settled_ < validity);
}

void Inquiry::answered(int rank, int code, Blob signature) {
  RankAnswer* const answer = answer_of(rank);
  if (answer == nullptr) {
    return;
  }
  switch (answer->state == State::called ? 0 : code) {
    case 0:
      if (answer->state != State::called) {
        answer->call = call_of(rank, std::move(signature));
      }
      return hear(*answer, State::called);
    case 1:
      return hear(*answer, State::not_yet);
    case 2:
      return hear(*answer, State::forgotten);
    case 3:
      return hear(*answer, State::not_member);
    case 4:
      return hear(*answer, State::freed);
    default:
      return hear(*answer, answer->state);  // no version of Sprat says this: it says nothing
  }
}

void Inquiry::hear(RankAnswer& answer, State state) {
  if (answer.awaited) {
    due_.unheard -= answer.heard ? 0 : 1;
    due_.unknown -= answer.state == State::unknown && state != State::unknown ? 1 : 0;
  }
  answer.heard = true;
  answer.state = state;
}

void Inquiry::has_gone(int rank) {
  RankAnswer* const answer = answer_of(rank);
  if (answer != nullptr && std::exchange(answer->awaited, false)) {
    due_.unheard -= answer->heard ? 0 : 1;
    due_.unknown -= answer->state == State::unknown ? 1 : 0;
  }
}

/// Signatures are numbered, since thousands of ranks have the same one.
std::size_t Inquiry::call_of(int rank, Blob signature) {
  const auto [found, is_new] = call_by_signature_.try_emplace(key_of(signature), calls_.size());
  if (is_new) {
    calls_.push_back({.signature = std::move(signature), .ranks = 0, .lowest = rank});
  }
  Called& called = calls_[found->second];
  ++called.ranks;
  called.lowest = std::min(called.lowest, rank);
  return found->second;
}

bool Inquiry::due(Time now) const {
  if (!open_) {
    return false;
  }
  // Once every rank has ever answered, two different calls are a mismatch, whatever is still to
  // come.
  return now >= deadline() || due_.unheard == 0 || (due_.unknown == 0 && calls_.size() > 1);
}

bool Inquiry::mismatch() const { return verdict_.code == static_cast<int>(ErrorCode::mismatch); }

const ControlMessage& Inquiry::settle(Time now) {
  open_ = false;
  settled_ = now;
  if (!find_mismatch() && !find_freed()) {
    list_late();
  }
  return verdict_;
}

/// Takes the signature that most ranks called for the right one (the lowest rank's, if equally
/// many). Of the ranks that differ from it, the lowest is named.
bool Inquiry::find_mismatch() {
  if (calls_.size() < 2) {
    return false;
  }
  const auto less_right = [](const Called& a, const Called& b) {
    return a.ranks != b.ranks ? a.ranks < b.ranks : a.lowest > b.lowest;
  };
  const auto right = std::ranges::max_element(calls_, less_right);
  const Called* wrong = nullptr;
  for (const Called& called : calls_) {
    if (&called != &*right && (wrong == nullptr || called.lowest < wrong->lowest)) {
      wrong = &called;
    }
  }
  verdict_.code = static_cast<int>(ErrorCode::mismatch);
  verdict_.rank = wrong->lowest;
  verdict_.payload.clear();
  verdict_.text = text("rank ", right->lowest, " called ", readable(right->signature), "; rank ",
                       wrong->lowest, " called ", readable(wrong->signature));
  return true;
}

/// A rank that has freed the communicator will never call, so waiting for it would end at the
/// deadline only.
bool Inquiry::find_freed() {
  const auto freed = std::ranges::find(answers_, State::freed, &RankAnswer::state);
  if (freed == answers_.end() || calls_.empty()) {
    return false;
  }
  const auto first = std::ranges::min_element(calls_, {}, &Called::lowest);
  verdict_.code = static_cast<int>(ErrorCode::mismatch);
  verdict_.rank = members_[static_cast<std::size_t>(freed - answers_.begin())];
  verdict_.payload.clear();
  verdict_.text = text("rank ", first->lowest, " called ", readable(first->signature), "; rank ",
                       verdict_.rank, " has freed that communicator before");
  return true;
}

void Inquiry::list_late() {
  std::vector<int> not_called, silent;
  Lateness lateness;
  for (std::size_t at = 0; at < members_.size(); ++at) {
    const int rank = members_[at];
    const RankAnswer& answer = answers_[at];
    if (answer.state == State::not_yet) {
      not_called.push_back(rank);
    }
    if (!answer.heard) {
      silent.push_back(rank);
    }
    if (answer.state == State::not_yet || answer.state == State::unknown) {
      lateness.late.push_back(rank);
    }
  }
  lateness.silent = silent;
  verdict_.code = static_cast<int>(ErrorCode::timeout);
  verdict_.text = "every rank has called";
  if (!not_called.empty()) {
    verdict_.text = text(ranks_text(not_called), " not called yet");
  }
  if (!silent.empty()) {
    verdict_.text =
        text(not_called.empty() ? "" : verdict_.text + "; ", "no answer from ", ranks_text(silent));
  }
  // A rank that has not called may itself wait for one that does not answer, so the silent ones are
  // blamed first.
  const std::vector<int>& blamed = silent.empty() ? lateness.late : silent;
  verdict_.rank = blamed.empty() ? -1 : blamed.front();
  verdict_.payload = encode(lateness);
}

/// How many bytes the late ones take, those, then the silent ones.
Blob encode(const Lateness& lateness) {
  const Blob late = encode_ranks(lateness.late), silent = encode_ranks(lateness.silent);
  const auto length = static_cast<std::uint32_t>(late.size());
  Blob out(length_bytes + late.size() + silent.size());
  std::memcpy(out.data(), &length, length_bytes);
  const auto behind = std::ranges::copy(late, out.begin() + length_bytes).out;
  std::ranges::copy(silent, behind);
  return out;
}

// The bytes come from another process: what does not fit gives an empty value.
Lateness decode_lateness(const Blob& payload) {
  std::uint32_t length = 0;
  if (payload.size() < length_bytes) {
    return {};
  }
  std::memcpy(&length, payload.data(), length_bytes);
  const auto lists = std::span(payload).subspan(length_bytes);
  if (length > lists.size()) {
    return {};
  }
  auto late = decode_ranks(lists.first(length), most_ranks_said);
  auto silent = decode_ranks(lists.subspan(length), most_ranks_said);
  return late && silent ? Lateness{std::move(*late), std::move(*silent)} : Lateness{};
}

}  // namespace sprat::comm
