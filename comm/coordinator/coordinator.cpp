#include "comm/coordinator/coordinator.hpp"

#include <algorithm>
#include <span>

#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"
#include "comm/base/rank_ranges.hpp"
#include "comm/coordinator/survivors.hpp"

namespace sprat::comm {
namespace {

// What ranks and strangers can make the coordinator keep is bounded.
constexpr std::size_t most_inquiries = 64;
constexpr std::size_t most_notes = 8;
constexpr std::size_t most_failed_domains = 1024;
constexpr std::size_t most_signature_bytes = std::size_t{64} << 10;

/// Of the communicator in which a rank waits, as it says; nothing where it says all, or nonsense.
std::vector<int> members_said(const ControlMessage& stalled, int rank, int size) {
  const auto bytes = std::as_bytes(std::span(stalled.text));
  auto ranks = decode_ranks(bytes, size).value_or(std::vector<int>());
  // A rank that is none of those it names is not understood.
  return std::ranges::binary_search(ranks, rank) ? std::move(ranks) : std::vector<int>();
}

std::string seconds_text(std::uint64_t milliseconds) {
  return text(static_cast<double>(milliseconds) / 1e3, " s");
}

}  // namespace

Coordinator::Coordinator(int size, std::vector<Term> terms, Quorum quorum)
    : gathering_(quorum == Quorum::survivors),
      size_at_first_(size),
      first_newcomer_(size),
      members_(size, Presence::absent),
      gone_(size, true),
      counts_{size, 0, 0, 0},
      refused_(size),
      terms_(std::move(terms)),
      farewells_(size),
      exchange_{.parts = std::vector<std::optional<Part>>(size)},
      handout_(size) {}

Hello Coordinator::numbered(Hello hello) const {
  if (hello.rank != unnumbered || hello.size != unnumbered) {
    return hello;
  }
  for (int rank = first_newcomer_; rank < size() && !failure_; ++rank) {
    if (members_[rank] == Presence::absent) {
      hello.rank = rank;
      hello.size = size();
      break;
    }
  }
  return hello;
}

std::optional<Refusal> Coordinator::admit(const Hello& hello, std::string_view from) {
  auto refusal = reason_to_refuse(hello, from);
  const bool known = hello.rank >= 0 && hello.rank < size();
  if (known && refusal) {
    refused_[hello.rank] = true;
  }
  if (!refusal) {
    set(hello.rank, Presence::joined);
  }
  return refusal;
}

// A survivor has its place here already, so it has left it for the next shrink. Of a job that has
// failed since, whoever was left behind may be taken back by the next shrink: those who were to go
// on without it may have failed before they did.
bool Coordinator::awaits_next_shrink(const Hello& hello) const {
  return !survivors_.empty() && hello.size == size_at_first_ &&
         (failure_ || std::ranges::binary_search(survivors_, hello.rank));
}

std::optional<Refusal> Coordinator::reason_to_refuse(const Hello& hello, std::string_view from) {
  if (hello.rank == unnumbered && hello.size == unnumbered) {
    return turn_newcomer_away(from);
  }
  if (failure_) {
    const bool lost = failure_->kind == ControlMessage::Kind::lost;
    return Refusal{failure_->code, failure_->rank,
                   text("the job has failed: ",
                        lost ? text("lost rank ", failure_->rank, ": ") : "", failure_->text)};
  }
  // The job has shrunk meanwhile: whoever still says its first size has slept through that.
  if (size() != size_at_first_ && hello.size == size_at_first_) {
    const std::string what =
        text("the others went on without rank ", hello.rank, ", which came too late");
    turned_away(text(from, ": ", what));
    return Refusal{static_cast<int>(ErrorCode::lost_peer), hello.rank, what};
  }
  if (hello.size != size()) {
    return refuse(ErrorCode::mismatch, hello.rank,
                  text("rank ", hello.rank, " says the job has ", hello.size,
                       " ranks; rank 0 says ", size(), ". Start every rank with the same size"),
                  from);
  }
  if (hello.rank < 0 || hello.rank >= size()) {
    return refuse(ErrorCode::invalid_argument, hello.rank,
                  text("there is no rank ", hello.rank, " in a job of ", size(), " ranks"), from);
  }
  if (const std::string diff = differences(hello); !diff.empty()) {
    return refuse(ErrorCode::mismatch, hello.rank, diff, from);
  }
  // A rank that was taken for dead while survivors gather may come after all.
  const bool given_up = gathering_ && members_[hello.rank] == Presence::lost;
  if (members_[hello.rank] != Presence::absent && !given_up) {
    // Those who are in have done nothing wrong: only the newcomer hears of it, and the job goes on.
    const std::string what = text("rank ", hello.rank,
                                  " has joined this job already; give each "
                                  "process its own rank, and each job its own rendezvous");
    turned_away(text(from, ": ", what));
    return Refusal{static_cast<int>(ErrorCode::invalid_argument), hello.rank, what};
  }
  return std::nullopt;
}

/// Those who are in have done nothing wrong, and another place for newcomers may open here soon, or
/// where the newcomer looks next.
Refusal Coordinator::turn_newcomer_away(std::string_view from) {
  const int places = size() - first_newcomer_;
  const std::string what = failure_ ? text("a communicator could not grow: ", failure_->text)
                           : places > 0
                               ? text("all ", places, " places for newcomers are taken")
                               : std::string("this job takes no newcomers: it does not grow");
  turned_away(text(from, ": ", what));
  return {static_cast<int>(ErrorCode::unavailable), unnumbered, what};
}

/// A rank that belongs to the job and cannot join ends the job while others still join, for they
/// would wait for it. Once all have joined, a refusal can only concern somebody who is not one of
/// them.
Refusal Coordinator::refuse(ErrorCode code, int rank, std::string text, std::string_view from) {
  turned_away(sprat::text(from, ": ", text));
  if (!gathering_ && count(Presence::absent) > 0) {
    fail(code, rank, text);
  }
  return {static_cast<int>(code), rank, std::move(text)};
}

void Coordinator::turned_away(std::string who) { note(text("turned away ", who)); }

void Coordinator::went_unnamed(std::string_view from, std::string_view how) {
  note(text("a rank at ", from, " went before it had said which one it is (", how, ")"));
}

void Coordinator::note(std::string what) {
  // Strangers may come without end; the error that lists the notes is read by people.
  if (notes_.size() < most_notes) {
    notes_.push_back(std::move(what));
  }
}

std::string Coordinator::differences(const Hello& hello) const {
  std::string lines;
  const auto value_in = [](const std::vector<Term>& terms, const std::string& name) {
    const auto found = std::ranges::find(terms, name, &Term::name);
    return found == terms.end() ? std::string("(unknown)") : text('"', found->value, '"');
  };
  const auto compare = [&](const std::string& name) {
    const std::string ours = value_in(terms_, name), theirs = value_in(hello.terms, name);
    if (ours != theirs) {
      lines += text("\n  ", name, ": ", ours, " on rank 0, ", theirs, " on rank ", hello.rank);
    }
  };
  for (const Term& term : terms_) {
    compare(term.name);
  }
  for (const Term& term : hello.terms) {
    if (std::ranges::find(terms_, term.name, &Term::name) == terms_.end()) {
      compare(term.name);
    }
  }
  if (lines.empty()) {
    return {};
  }
  return text("rank ", hello.rank, " and rank 0 differ in what every rank must agree on:", lines);
}

bool Coordinator::received(int rank, Frame frame, Time now) {
  if (members_[rank] != Presence::joined) {
    return true;  // it left or was lost after it had said this
  }
  if (auto* part = std::get_if<Part>(&frame)) {
    receive(rank, std::move(*part), now);
    return true;
  }
  if (auto* message = std::get_if<ControlMessage>(&frame)) {
    receive(rank, std::move(*message), now);
    return true;
  }
  if (const auto* place = std::get_if<PartsPlace>(&frame)) {
    send(handout_.placed(rank, *place, now));
    return true;
  }
  if (const auto* taken = std::get_if<PartsTaken>(&frame)) {
    send(handout_.taken(rank, *taken, now));
    return true;
  }
  return false;
}

void Coordinator::receive(int rank, Part part, Time now) {
  if (failure_) {
    // This rank may have sent its part before the failure reached it.
    send({rank}, *failure_);
    return;
  }
  // A rank begins an exchange only after it has received the one before, which needed a part of
  // every rank. So nobody can be ahead or behind.
  if (part.ordinal != exchange_.ordinal || exchange_.parts[rank]) {
    fail(ErrorCode::internal, rank,
         text("rank ", rank, " sent exchange ", part.ordinal, " during exchange ",
              exchange_.ordinal));
    return;
  }
  // Of those that came, all have the first one's purpose: it is the only one to compare with.
  if (exchange_.came > 0 && exchange_.purpose != part.purpose) {
    const auto other =
        std::ranges::find_if(exchange_.parts, [](const auto& came) { return came.has_value(); });
    fail(ErrorCode::mismatch, rank,
         text("rank ", other - exchange_.parts.begin(), " is ", exchange_.purpose, " while rank ",
              rank, " is ", part.purpose));
    return;
  }
  // The answer holds the parts of all ranks in one frame, whose length is bounded.
  exchange_.bytes += part.blob.size();
  if (exchange_.bytes > max_exchange_bytes) {
    fail(ErrorCode::invalid_argument, rank,
         text(part.purpose, " takes more than ", max_exchange_bytes, " bytes over all ranks"));
    return;
  }
  // The number comes from outside; its bound keeps the sum below from overflowing.
  part.patience_ms =
      std::min(part.patience_ms, static_cast<std::uint64_t>(longest_exchange.count()));
  const std::chrono::milliseconds patience(part.patience_ms);
  // The exchange fails for all when the first rank's patience ends, so that nobody goes on alone.
  if (!exchange_.deadline || now + patience < *exchange_.deadline) {
    exchange_.deadline = now + patience;
    exchange_.hurry = rank;
  }
  if (exchange_.came++ == 0) {
    exchange_.purpose = part.purpose;
  }
  handout_.shares_on(rank, part.host);
  exchange_.parts[rank] = std::move(part);
  exchange_.last_came = now;
  finish_exchange();
}

// Comes with every part, so nothing here looks at all ranks before the last part has come, unless a
// rank has left or survivors gather.
void Coordinator::finish_exchange() {
  if (exchange_.came == 0) {
    return;
  }
  for (int rank = 0; rank < size() && !gathering_ && count(Presence::left) > 0; ++rank) {
    // Whoever has left in good order never sends its part. While survivors gather it is merely no
    // survivor.
    if (!exchange_.parts[rank] && members_[rank] == Presence::left) {
      fail(ErrorCode::lost_peer, rank, text("rank ", rank, " left before ", exchange_.purpose));
      return;
    }
  }
  if (!complete()) {
    return;
  }
  Parts whole{exchange_.ordinal, {}};
  for (auto& part : exchange_.parts) {
    whole.blobs.push_back(part ? std::move(part->blob) : Blob{});
    part.reset();
  }
  const std::size_t bytes = std::exchange(exchange_.bytes, 0);
  ++exchange_.ordinal;
  exchange_.came = 0;
  exchange_.deadline.reset();
  // Everyone gets the testimonies under the old numbers, and renumbers right after them, as this
  // does.
  if (gathering_) {
    const std::vector<int> kept = survivors(whole.blobs);
    send(in_state(Presence::joined), std::move(whole));
    return renumber(kept);
  }
  send(handout_.give(std::move(whole), in_state(Presence::joined), bytes, exchange_.last_came));
}

bool Coordinator::complete() const {
  if (!gathering_) {
    return exchange_.came == size();
  }
  for (int rank = 0; rank < size(); ++rank) {
    const bool excused = members_[rank] != Presence::absent && members_[rank] != Presence::joined;
    if (!exchange_.parts[rank] && !excused) {
      return false;
    }
  }
  return true;
}

void Coordinator::renumber(const std::vector<int>& kept) {
  gathering_ = false;
  survivors_ = kept;
  members_.assign(kept.size(), Presence::joined);
  gone_.assign(kept.size(), false);
  counts_ = {0, size(), 0, 0};
  farewells_ = Farewells(size());
  refused_.assign(kept.size(), false);
  first_newcomer_ = size();
  exchange_.parts.assign(kept.size(), std::nullopt);
  handout_ = Handout(size());  // of what survivors said, everyone got all
  renumbering_ = kept;
}

void Coordinator::excuse(int rank) {
  if (gathering_ && members_[rank] == Presence::absent) {
    give_up(rank);
  }
}

/// While survivors gather, a rank that ends is merely not one of them: the exchange goes on without
/// it.
void Coordinator::give_up(int rank) {
  set(rank, Presence::lost);
  if (exchange_.parts[rank]) {
    exchange_.bytes -= exchange_.parts[rank]->blob.size();
    --exchange_.came;
  }
  exchange_.parts[rank].reset();
  finish_exchange();
}

void Coordinator::expire_exchange() {
  if (gathering_) {
    // Whoever is alive and has not come by now is left behind (docs/failure.md).
    for (int rank = 0; rank < size(); ++rank) {
      if (!exchange_.parts[rank] && members_[rank] != Presence::left) {
        set(rank, Presence::lost);
      }
    }
    return finish_exchange();
  }
  std::vector<int> came, behind, absent = in_state(Presence::absent);
  for (int rank = 0; rank < size(); ++rank) {
    if (exchange_.parts[rank]) {
      came.push_back(rank);
    } else if (members_[rank] != Presence::absent) {
      behind.push_back(rank);
    }
  }
  std::string what =
      text(exchange_.purpose, ": ", came.size(), " of ", size(), " ranks came within the ",
           seconds_text(exchange_.parts[exchange_.hurry]->patience_ms), " that rank ",
           exchange_.hurry, " had left (", ranks_text(came), ")");
  if (!absent.empty()) {
    what += text("; missing: ", ranks_text(absent));
    if (absent.back() >= first_newcomer_) {
      what += text(" (newcomers are those from ", first_newcomer_, " on)");
    }
  }
  if (!behind.empty()) {
    what += text("; joined but did not come: ", ranks_text(behind));
  }
  for (const std::string& note : notes_) {
    what += text("; ", note);
  }
  fail(ErrorCode::timeout, absent.empty() ? behind.front() : absent.front(), std::move(what));
}

void Coordinator::receive(int rank, ControlMessage message, Time now) {
  using Kind = ControlMessage::Kind;
  switch (message.kind) {
    case Kind::lost:
      if (message.rank >= 0 && message.rank < size()) {
        lose(message.rank, message.text);
      }
      return;
    case Kind::failed:
      // Those who hear of it look the rank up. One that is none says nothing of who is at fault.
      if (message.rank < -1 || message.rank >= size()) {
        message.rank = rank;
      }
      if (!failure_) {
        failure_ = message;
      }
      send(joined_but(rank), std::move(message));
      return;
    case Kind::stalled:
      if (const auto question = decode_question(message.sequence)) {
        return ask(rank, *question, message);
      }
      stalled(rank, std::move(message), now);
      return;
    case Kind::answer:
      if (const auto question = decode_question(message.sequence)) {
        return answered(rank, *question, message);
      }
      if (const auto found = inquiries_.find({message.comm, message.sequence});
          found != inquiries_.end() && message.payload.size() <= most_signature_bytes) {
        found->second.answered(rank, message.code, std::move(message.payload));
        settle_if_due(found->second, now);
      }
      return;
    case Kind::farewell:
      leave(rank, now);
      return;
    case Kind::domain_failed:
      return domain_failed(rank, std::move(message));
    case Kind::gather:
      return gather(rank, message, now);
    case Kind::query:
    case Kind::verdict:
    case Kind::gathered:
      return;  // what only the coordinator says
  }
}

// Told once: after a loss, each of a domain's ranks says the same.
void Coordinator::domain_failed(int rank, ControlMessage message) {
  if (std::ranges::count(failed_domains_, message.comm) > 0) {
    return;
  }
  if (failed_domains_.size() == most_failed_domains) {
    failed_domains_.pop_front();
  }
  failed_domains_.push_back(message.comm);
  if (message.rank < -1 || message.rank >= size()) {
    message.rank = rank;
  }
  send(joined_but(rank), std::move(message));
}

void Coordinator::gather(int rank, const ControlMessage& message, Time now) {
  gatherings_.came(rank, message, size(), now);
  settle_gatherings();
}

void Coordinator::settle_gatherings() {
  for (Gatherings::Answer& answer : gatherings_.settle(gone_)) {
    std::erase_if(answer.to, [&](int rank) { return members_[rank] != Presence::joined; });
    send(std::move(answer.to), std::move(answer.message));
  }
}

void Coordinator::stalled(int rank, ControlMessage message, Time now) {
  if (message.payload.size() > most_signature_bytes) {
    return;
  }
  const Key key{message.comm, message.sequence};
  auto found = inquiries_.find(key);
  if (found == inquiries_.end()) {
    forget_old_inquiries();
    found = inquiries_
                .try_emplace(key, message.comm, message.sequence,
                             members_said(message, rank, size()), size())
                .first;
    inquiry_order_.push_back(key);
  }
  Inquiry& inquiry = found->second;
  // Many ranks wait in the same operation and ask again: the last verdict answers them without
  // another question to everybody.
  if (inquiry.still_answers(rank, message.payload, now)) {
    send({rank}, inquiry.verdict());
    return;
  }
  auto queried = inquiry.asked(rank, std::move(message.payload), gone_, now);
  if (!queried.empty()) {
    ControlMessage query;
    query.kind = ControlMessage::Kind::query;
    query.comm = message.comm;
    query.sequence = message.sequence;
    send(std::move(queried), std::move(query));
  }
  settle_if_due(inquiry, now);
}

// Only the peer is asked: many ranks may wait for messages at any time, as the stages of a pipeline
// do.
void Coordinator::ask(int rank, const MessageQuestion& question, const ControlMessage& asked) {
  if (question.asker != rank || question.peer >= size() ||
      members_[question.peer] != Presence::joined) {
    return;
  }
  ControlMessage query;
  query.kind = ControlMessage::Kind::query;
  query.comm = asked.comm;
  query.sequence = asked.sequence;
  send({question.peer}, std::move(query));
}

void Coordinator::answered(int rank, const MessageQuestion& question,
                           const ControlMessage& answer) {
  constexpr int freed = 4;
  if (question.peer != rank || question.asker >= size() ||
      members_[question.asker] != Presence::joined || answer.code != freed) {
    return;
  }
  ControlMessage verdict;
  verdict.kind = ControlMessage::Kind::verdict;
  verdict.comm = answer.comm;
  verdict.sequence = answer.sequence;
  verdict.code = static_cast<int>(ErrorCode::mismatch);
  verdict.rank = rank;
  verdict.text =
      text("rank ", question.asker, " waits for a message ", question.sends ? "to" : "from",
           " rank ", rank, "; rank ", rank, " has freed that communicator before");
  send(in_state(Presence::joined), std::move(verdict));
}

void Coordinator::forget_old_inquiries() {
  while (inquiry_order_.size() >= most_inquiries) {
    inquiries_.erase(inquiry_order_.front());
    inquiry_order_.erase(inquiry_order_.begin());
  }
}

void Coordinator::settle_if_due(Inquiry& inquiry, Time now) {
  if (!inquiry.due(now)) {
    return;
  }
  const ControlMessage& verdict = inquiry.settle(now);
  // A mismatch ends the job, so all hear of it; lateness concerns those who asked.
  std::vector<int> to = inquiry.mismatch() ? in_state(Presence::joined) : inquiry.askers();
  std::erase_if(to, [&](int rank) { return members_[rank] != Presence::joined; });
  send(std::move(to), verdict);
}

void Coordinator::ended(int rank, std::string_view how) {
  if (members_[rank] == Presence::joined) {
    lose(rank, how);
  }
}

void Coordinator::lose(int rank, std::string_view how) {
  if (members_[rank] == Presence::left || members_[rank] == Presence::lost) {
    return;
  }
  if (gathering_) {
    return give_up(rank);
  }
  set(rank, Presence::lost);
  ControlMessage message;
  message.kind = ControlMessage::Kind::lost;
  message.rank = rank;
  message.code = static_cast<int>(ErrorCode::lost_peer);
  message.text = how;
  if (!failure_) {
    failure_ = message;
  }
  send(in_state(Presence::joined), std::move(message));
  settle_gatherings();
}

void Coordinator::leave(int rank, Time now) {
  if (gathering_) {
    return give_up(rank);
  }
  set(rank, Presence::left);
  farewells_.said(rank);
  tell_farewells(farewells_.due(now));
  // An exchange that is under way fails now, since this rank's part will not come.
  if (!failure_) {
    finish_exchange();
  }
  settle_gatherings();
}

// Parts come first: who hears of a farewell may end.
void Coordinator::finish() {
  send(handout_.rest());
  tell_farewells(farewells_.rest());
}

// Those that have left hear it, too: they stay for a moment, until nobody needs their wires any
// more.
void Coordinator::tell_farewells(const std::vector<int>& ranks) {
  if (ranks.empty()) {
    return;
  }
  std::vector<int> to;
  for (int rank = 0; rank < size(); ++rank) {
    const bool hears = members_[rank] == Presence::joined || members_[rank] == Presence::left;
    // Of itself alone a rank need not hear.
    if (hears && (ranks.size() > 1 || rank != ranks.front())) {
      to.push_back(rank);
    }
  }
  send(std::move(to), farewell_of(ranks));
}

/// Inquiries that are open wait no longer for whoever has gone.
void Coordinator::set(int rank, Presence presence) {
  --counts_[static_cast<std::size_t>(members_[rank])];
  ++counts_[static_cast<std::size_t>(presence)];
  members_[rank] = presence;
  gone_[rank] = presence != Presence::joined;
  if (gone_[rank]) {
    for (auto& [key, inquiry] : inquiries_) {
      inquiry.has_gone(rank);
    }
    send(handout_.gone(rank));
  }
}

void Coordinator::fail(ErrorCode code, int rank, std::string text) {
  ControlMessage message;
  message.kind = ControlMessage::Kind::failed;
  message.rank = rank;
  message.code = static_cast<int>(code);
  message.text = std::move(text);
  exchange_.deadline.reset();
  if (!failure_) {
    failure_ = message;
  }
  send(in_state(Presence::joined), std::move(message));
}

void Coordinator::tick(Time now) {
  if (exchange_.deadline && now >= *exchange_.deadline && !failure_) {
    expire_exchange();
  }
  for (auto& [key, inquiry] : inquiries_) {
    settle_if_due(inquiry, now);
  }
  send(handout_.tick(now));
  tell_farewells(farewells_.due(now));
  gatherings_.expire(now);
  settle_gatherings();
}

std::optional<Coordinator::Time> Coordinator::deadline() const {
  std::optional<Time> first = failure_ ? std::nullopt : exchange_.deadline;
  for (const auto& [key, inquiry] : inquiries_) {
    if (inquiry.open() && (!first || inquiry.deadline() < *first)) {
      first = inquiry.deadline();
    }
  }
  for (const auto end : {gatherings_.deadline(), farewells_.deadline(), handout_.deadline()}) {
    if (end && (!first || *end < *first)) {
      first = end;
    }
  }
  return first;
}

bool Coordinator::alone(int rank) const {
  return count(Presence::joined) == (members_[rank] == Presence::joined ? 1 : 0);
}

bool Coordinator::everyone_has_come() const {
  return std::ranges::all_of(in_state(Presence::absent), [&](int rank) { return refused_[rank]; });
}

void Coordinator::send(std::vector<int> to, Frame frame) {
  if (!to.empty()) {
    outputs_.push_back({std::move(to), std::move(frame)});
  }
}

void Coordinator::send(std::vector<Output> outputs) {
  for (Output& output : outputs) {
    send(std::move(output.to), std::move(output.frame));
  }
}

std::vector<int> Coordinator::in_state(Presence state) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (members_[rank] == state) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

std::vector<int> Coordinator::joined_but(int rank) const {
  std::vector<int> ranks = in_state(Presence::joined);
  std::erase(ranks, rank);
  return ranks;
}

}  // namespace sprat::comm
