// Sends and receives of one communicator.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/executor.hpp"
#include "collectives/engine/work.hpp"
#include "comm/context/context.hpp"

namespace sprat::collectives {

/// One send or receive, checked.
class Message final : public Work::State {
 public:
  explicit Message(std::shared_ptr<comm::Context> context) : State(std::move(context)) {}
  using State::fail;
  using State::finish;

  bool sends = false;
  /// Set: the library's own, apart from its users' messages. For errors, what it is for; a receive
  /// may be longer than its message.
  std::string purpose;
  int peer = 0;  ///< Rank of the communicator; any_source until a message has come.
  int tag = 0;
  std::byte* data = nullptr;  ///< Not written by a send.
  std::size_t bytes = 0;
  comm::Clock::time_point posted{}, deadline{};
  std::chrono::milliseconds timeout{0};
  bool warned = false;              ///< It has been said that it waits long.
  comm::Clock::time_point cut{};    ///< Since when its wire has failed, or its peer left.
  comm::Clock::time_point asked{};  ///< When its peer was asked whether it can still come.
  comm::MessageRequest request;
  Recorder::Entry entry = nullptr;
  bool digested = true;      ///< See Options; the library's own are not.
  std::uint64_t number = 0;  ///< Of a receive that is digested: see DigestRecorder.
  int source() const override { return sends ? -1 : peer; }
};

class PointToPoint final : public comm::Driver {
 public:
  /// `executor`, of the same communicator, outlives it.
  PointToPoint(std::shared_ptr<comm::Context> context, Executor& executor);
  /// Waits for sends that are under way; withdraws receives.
  ~PointToPoint() override;

  void post(const std::shared_ptr<Message>& message);
  const comm::FailureScope& scope() const { return *scope_; }
  int world_rank(int rank) const { return membership_.world_ranks[rank]; }

  comm::Advance advance() noexcept override;
  /// Its messages are no part of the communicator's sequence, so it answers no query.
  std::uint64_t communicator() const noexcept override { return no_communicator; }
  comm::Recall called(std::uint64_t) const override { return {}; }
  std::string under_way() const override;

 private:
  void drain();
  void start(Message& message);
  void move(comm::MessageTransport& transport, bool local);
  bool is_digested(const Message& message) const {
    return digests_.on() && message.digested && message.purpose.empty();
  }
  bool start_waiting();
  bool end_waiting(const Error* failure);
  /// Who sends to this rank by one transport.
  struct Senders {
    comm::MessageTransport* transport = nullptr;  ///< Null: there is none.
    bool local = false;
    int last = -1;  ///< World rank from which a receive from any source got a message last.
  };
  bool find_source(Message& message);
  std::optional<int> first_sender(const Senders& senders, std::uint64_t tag) const;
  bool goes_on(Message& message, bool look_at_clock);
  void warn_if_long(Message& message, comm::Clock::time_point now) const;
  void ask_if_long(Message& message, comm::Clock::time_point now);
  std::string awaited(const Message& message) const;
  void check(Message& message);
  void withdraw(Message& message) noexcept;
  std::string describe(const Message& message) const;

  std::shared_ptr<comm::Context> context_;  ///< Shared by the communicators of a rank.
  const Membership& membership_;
  Recorder& recorder_;
  const std::shared_ptr<const comm::FailureScope> scope_;  ///< The executor's; shared with works.
  digests::DigestRecorder& digests_;
  // Guarded by the context's token.
  std::list<std::shared_ptr<Message>> in_flight_;  ///< The transports have them.
  /// Receives from any source, and those behind them that the same messages may match, in order.
  std::list<std::shared_ptr<Message>> waiting_;
  /// With whom messages were exchanged so far, by rank of the communicator.
  struct Counts {
    std::uint32_t sent = 0, received = 0;  ///< Begun to send, and received.
  };
  std::vector<Counts> counts_;
  std::array<Senders, 2> senders_;  ///< The one that is looked at first comes first.
  std::uint32_t idle_calls_ = 0;
  comm::Clock::time_point next_question_{};
};

}  // namespace sprat::collectives
