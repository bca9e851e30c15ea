#include "comm/coordinator/control_inquiry.hpp"

#include <algorithm>
#include <cstring>

#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"

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

}  // namespace

Inquiry::Inquiry(std::uint64_t comm, std::uint64_t sequence, int size) : answers_(size) {
  verdict_.kind = ControlMessage::Kind::verdict;
  verdict_.comm = comm;
  verdict_.sequence = sequence;
}

std::vector<int> Inquiry::asked(int rank, Blob signature, const std::vector<bool>& gone, Time now) {
  std::vector<int> queried;
  if (!open_) {
    open_ = true;
    opened_ = now;
    askers_.clear();
    for (int other = 0; other < static_cast<int>(answers_.size()); ++other) {
      RankAnswer& answer = answers_[other];
      // What a rank has called does not change, so only other answers are asked for again.
      if (answer.state != State::called) {
        answer = {};
      }
      answer.heard = false;
      if (!gone[other] && other != rank) {
        queried.push_back(other);
      }
    }
  }
  answers_[rank] = {State::called, true, std::move(signature)};
  if (std::ranges::find(askers_, rank) == askers_.end()) {
    askers_.push_back(rank);
  }
  return queried;
}

bool Inquiry::still_answers(int rank, const Blob& signature, Time now) const {
  if (open_) {
    return false;
  }
  // A mismatch is final; a list of late ranks is soon out of date.
  return answers_[rank].state == State::called && answers_[rank].signature == signature &&
         (mismatch() || now - settled_ < validity);
}

void Inquiry::answered(int rank, int code, Blob signature) {
  answers_[rank].heard = true;
  if (answers_[rank].state == State::called) {
    return;
  }
  switch (code) {
    case 0:
      answers_[rank] = {State::called, true, std::move(signature)};
      return;
    case 1:
      answers_[rank].state = State::not_yet;
      return;
    case 2:
      answers_[rank].state = State::forgotten;
      return;
    case 3:
      answers_[rank].state = State::not_member;
      return;
    case 4:
      answers_[rank].state = State::freed;
      return;
    default:
      return;  // no version of Sprat says this, so it counts as no answer
  }
}

bool Inquiry::due(const std::vector<bool>& gone, Time now) const {
  if (!open_) {
    return false;
  }
  if (now >= deadline()) {
    return true;
  }
  bool all_known = true, all_heard = true, alike = true;
  const RankAnswer* called = nullptr;
  for (std::size_t rank = 0; rank < answers_.size(); ++rank) {
    const RankAnswer& answer = answers_[rank];
    all_known &= answer.state != State::unknown || gone[rank];
    all_heard &= answer.heard || gone[rank];
    if (answer.state == State::called) {
      alike &= called == nullptr || called->signature == answer.signature;
      called = &answer;
    }
  }
  // Once every rank has ever answered, two different calls are a mismatch, whatever is still to
  // come.
  return all_heard || (all_known && !alike);
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
  int right = -1, most = 0;
  for (int rank = 0; rank < static_cast<int>(answers_.size()); ++rank) {
    if (answers_[rank].state != State::called) {
      continue;
    }
    const auto same = std::ranges::count_if(answers_, [&](const RankAnswer& other) {
      return other.state == State::called && other.signature == answers_[rank].signature;
    });
    if (same > most) {
      right = rank;
      most = static_cast<int>(same);
    }
  }
  for (int rank = 0; rank < static_cast<int>(answers_.size()); ++rank) {
    const RankAnswer& answer = answers_[rank];
    if (answer.state != State::called || answer.signature == answers_[right].signature) {
      continue;
    }
    verdict_.code = static_cast<int>(ErrorCode::mismatch);
    verdict_.rank = rank;
    verdict_.payload.clear();
    verdict_.text = text("rank ", right, " called ", readable(answers_[right].signature), "; rank ",
                         rank, " called ", readable(answer.signature));
    return true;
  }
  return false;
}

/// A rank that has freed the communicator will never call, so waiting for it would end at the
/// deadline only.
bool Inquiry::find_freed() {
  const auto freed = std::ranges::find(answers_, State::freed, &RankAnswer::state);
  const auto called = std::ranges::find(answers_, State::called, &RankAnswer::state);
  if (freed == answers_.end() || called == answers_.end()) {
    return false;
  }
  const auto first = static_cast<int>(called - answers_.begin());
  verdict_.code = static_cast<int>(ErrorCode::mismatch);
  verdict_.rank = static_cast<int>(freed - answers_.begin());
  verdict_.payload.clear();
  verdict_.text = text("rank ", first, " called ", readable(called->signature), "; rank ",
                       verdict_.rank, " has freed that communicator before");
  return true;
}

void Inquiry::list_late() {
  std::vector<int> not_called, silent;
  Lateness lateness;
  for (int rank = 0; rank < static_cast<int>(answers_.size()); ++rank) {
    const RankAnswer& answer = answers_[rank];
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

}  // namespace sprat::comm
