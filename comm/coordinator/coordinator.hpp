// The coordinator: who has joined, what they exchange, and who must hear of what. Pure: no sockets,
// no threads, no clock but the times it is given.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/coordinator/control_frame.hpp"
#include "comm/coordinator/control_inquiry.hpp"
#include "comm/coordinator/farewells.hpp"
#include "comm/coordinator/gathering.hpp"
#include "comm/coordinator/handout.hpp"
#include "comm/coordinator/message_question.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {

/// What all ranks tell each other at one time, under way or to come next.
struct ExchangeUnderWay {
  std::uint64_t ordinal = 1;
  std::vector<std::optional<Part>> parts = {};  ///< By rank.
  int came = 0;                                 ///< How many parts there are.
  std::string purpose = {};                     ///< Of them all.
  std::size_t bytes = 0;                        ///< Of the parts.
  std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt;
  int hurry = 0;  ///< The rank whose patience ends first. Its part is there.
  std::chrono::steady_clock::time_point last_came{};  ///< When the last part did.
};

/// One job's. Whatever comes in may leave frames to be sent: take() them after each call.
/// One thread at a time.
class Coordinator {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Output = FrameTo;

  /// Whom the first exchange needs.
  enum class Quorum : std::uint8_t {
    everyone,
    survivors,  ///< Who comes. It is of Testimonies; once it is complete the job has only the
                ///< survivors, renumbered.
  };

  /// `terms` are rank 0's: those that every rank is held against.
  Coordinator(int size, std::vector<Term> terms, Quorum quorum = Quorum::everyone);

  /// Ranks from this one on are newcomers', who get their numbers as they come. Before the first
  /// admit().
  void take_newcomers(int first) { first_newcomer_ = first; }
  /// `hello` with the number that its sender has, or gets if it is let in: a newcomer's is the
  /// first that is free. Unnumbered still if there is no place for it.
  Hello numbered(Hello hello) const;
  /// Lets a rank in, or says why not. `from` names its address for people.
  std::optional<Refusal> admit(const Hello& hello, std::string_view from);
  /// Of a quorum of survivors that have met: `hello` is of a rank that comes for the next shrink,
  /// which another coordinator serves.
  bool awaits_next_shrink(const Hello& hello) const;
  /// A frame of a rank that has joined. False if a rank may not send it: its connection is to end.
  bool received(int rank, Frame frame, Time now);
  /// A rank's connection has ended; `how` is for people.
  void ended(int rank, std::string_view how);
  /// A quorum of survivors need not wait for `rank`: it is dead, unless it comes after all.
  void excuse(int rank);
  /// Once, after the first exchange of survivors: element r is what rank r was before. It happens
  /// after what take() then holds.
  std::optional<std::vector<int>> take_renumbering() { return std::exchange(renumbering_, {}); }
  /// Ranks that have neither come nor been given up.
  std::vector<int> awaited() const { return in_state(Presence::absent); }
  /// A connection that did not get so far as to name a rank was turned away.
  void turned_away(std::string who);
  /// One of a rank, for it knew the token, ended before it had said which rank it is.
  void went_unnamed(std::string_view from, std::string_view how);
  /// Time has passed.
  void tick(Time now);
  /// When tick() has something to do next.
  std::optional<Time> deadline() const;
  std::vector<Output> take() { return std::exchange(outputs_, {}); }

  /// Nobody ticks any more, and nobody is heard: tells the farewells that wait for others to be
  /// told with them, and gives what the last exchange gave to whoever may not have it.
  void finish();

  /// Every rank but `rank` has left, is lost, or never came.
  bool alone(int rank) const;
  /// Every rank has joined or been refused: nobody is left who would look for this coordinator in
  /// vain.
  bool everyone_has_come() const;
  int size() const { return static_cast<int>(members_.size()); }

 private:
  enum class Presence : std::uint8_t { absent, joined, left, lost };
  using Key = std::pair<std::uint64_t, std::uint64_t>;  ///< (comm, sequence)

  void note(std::string what);
  std::optional<Refusal> reason_to_refuse(const Hello& hello, std::string_view from);
  Refusal turn_newcomer_away(std::string_view from);
  void receive(int rank, Part part, Time now);
  void receive(int rank, ControlMessage message, Time now);
  void domain_failed(int rank, ControlMessage message);
  void gather(int rank, const ControlMessage& message, Time now);
  void settle_gatherings();
  void stalled(int rank, ControlMessage message, Time now);
  void ask(int rank, const MessageQuestion& question, const ControlMessage& asked);
  void answered(int rank, const MessageQuestion& question, const ControlMessage& answer);
  void settle_if_due(Inquiry& inquiry, Time now);
  void forget_old_inquiries();
  void lose(int rank, std::string_view how);
  void leave(int rank, Time now);
  void tell_farewells(const std::vector<int>& ranks);
  void finish_exchange();
  bool complete() const;
  void renumber(const std::vector<int>& kept);
  void give_up(int rank);
  void expire_exchange();
  void set(int rank, Presence presence);
  int count(Presence presence) const { return counts_[static_cast<std::size_t>(presence)]; }
  void fail(ErrorCode code, int rank, std::string text);
  void send(std::vector<int> to, Frame frame);
  void send(std::vector<Output> outputs);
  std::vector<int> in_state(Presence state) const;
  std::vector<int> joined_but(int rank) const;
  Refusal refuse(ErrorCode code, int rank, std::string text, std::string_view from);
  std::string differences(const Hello& hello) const;

  bool gathering_;  ///< The exchange of survivors is to come or under way.
  const int size_at_first_;
  int first_newcomer_;  ///< The size: there are none.
  std::optional<std::vector<int>> renumbering_;
  std::vector<int> survivors_;     ///< That have met, by the numbers that they had before.
  std::vector<Presence> members_;  ///< Changed by set() alone.
  std::vector<bool> gone_;         ///< By rank: not joined.
  std::array<int, 4> counts_{};    ///< How many ranks are in each state.
  std::vector<bool> refused_;      ///< By rank.
  std::vector<Term> terms_;
  /// Who was turned away, or came and went; for the error that lists who is missing.
  std::vector<std::string> notes_;
  std::optional<ControlMessage> failure_;     ///< The job's first one, or the first loss.
  std::deque<std::uint64_t> failed_domains_;  ///< The last ones that were told of.
  Gatherings gatherings_;
  Farewells farewells_;

  ExchangeUnderWay exchange_;
  Handout handout_;  ///< Of what the last exchange gave.
  std::map<Key, Inquiry> inquiries_;
  std::vector<Key> inquiry_order_;  ///< Oldest first.
  std::vector<Output> outputs_;
};

}  // namespace sprat::comm
