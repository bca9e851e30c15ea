// The coordinator's side of the TCP wire: lets connections in that prove the token, and carries
// their frames.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "comm/coordinator/control_connection.hpp"
#include "comm/coordinator/control_loop.hpp"
#include "comm/coordinator/timed_coordinator.hpp"
#include "comm/coordinator/trust.hpp"

namespace sprat::comm {

class PendingConnection;

/// Lives on its loop. Foreign, slow and silent connections harm nobody: each has its own deadline
/// and little memory until it has proved the token.
class ControlServer final : public std::enable_shared_from_this<ControlServer> {
 public:
  /// Who may come in: whoever proves the token, and is to be trusted.
  struct Admission {
    std::string token;
    Trust trust = Trust::proof;
    Encryption encryption = Encryption::off;
  };
  /// Shared: a connection that has just been made may find it closed.
  static std::shared_ptr<ControlServer> start(
      ControlLoop& loop, Listening listening, Admission admission, const Hello& own,
      Coordinator::Quorum quorum = Coordinator::Quorum::everyone);
  /// Ranks from `first` on are newcomers'. On the loop's thread, before anybody is let in.
  void take_newcomers(int first) { coordinator_->take_newcomers(first); }
  /// Of a quorum of survivors: `rank` is dead. On the loop's thread.
  void excuse(int rank) { coordinator_->excuse(rank); }
  /// Of a quorum of survivors: ranks that have neither come nor been given up.
  std::vector<int> awaited() const { return coordinator_->awaited(); }
  /// Rank 0's own line: trusted.
  void adopt(StreamSocket socket, const Hello& own);
  /// Leaves what it listens on to others: whoever has not been let in or refused is to come again.
  /// On the loop's thread.
  void stop_accepting();
  /// Ends every connection after what was sent has gone out, having waited a while for the other
  /// ranks: to leave, or, if the job has failed, to come and hear of it. Bounded; not on the loop's
  /// thread.
  void close() noexcept;

  // --- for PendingConnection ---
  const Admission& admission() const { return admission_; }
  /// Null: connections are plain.
  const std::shared_ptr<const TlsContext>& encryption() const { return encryption_; }
  boost::asio::io_context& io() { return loop_.io(); }
  void turned_away(const std::shared_ptr<PendingConnection>& pending, std::string note);
  void went_unnamed(const PendingConnection& pending, std::string_view how);
  void enters(const std::shared_ptr<PendingConnection>& pending, const Hello& said);
  void dismiss(const std::shared_ptr<PendingConnection>& pending);

 private:
  ControlServer(ControlLoop& loop, Listening listening, Admission admission, const Hello& own,
                Coordinator::Quorum quorum);
  void let_in(const std::shared_ptr<PendingConnection>& pending, const Hello& hello);
  void accept();
  bool take_next();
  void ran_short(std::string_view what);
  void accept_later();
  void renumber(const std::vector<int>& kept);
  ControlConnection::Events events_of(int rank);
  void seat(int rank, std::shared_ptr<ControlConnection> connection);
  void received(int rank, Frame frame);
  void ended(int rank, std::string_view how);
  void deliver(const std::vector<int>& to, const Frame& frame);
  /// Until `condition`, which the loop's thread looks at whenever something happens; or the limit.
  void wait(std::function<bool()> condition, std::chrono::milliseconds limit);
  void check_wait();

  ControlLoop& loop_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer accept_timer_;
  const Admission admission_;
  const std::shared_ptr<const TlsContext> encryption_;
  std::shared_ptr<TimedCoordinator> coordinator_;
  std::set<std::shared_ptr<PendingConnection>> pending_;   ///< Not joined yet.
  std::vector<std::shared_ptr<ControlConnection>> seats_;  ///< By rank; null: none, or ended.
  int own_rank_;
  bool failed_ = false;
  bool warned_ = false;              ///< That ranks join without a secret.
  bool went_ = false;                ///< It has been said that a rank came and went.
  bool short_ = false;               ///< It has been noted that descriptors or memory ran out.
  std::function<bool()> condition_;  ///< What wait() waits for.
  std::promise<void> condition_holds_;
};

}  // namespace sprat::comm
