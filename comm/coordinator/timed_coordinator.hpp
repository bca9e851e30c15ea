// A coordinator in real time: its clock, and who carries what it says.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/coordinator/coordinator.hpp"

namespace sprat::comm {

/// On its io_context's thread only. Shared, so that a timer that has just fired can find it gone.
class TimedCoordinator final : public std::enable_shared_from_this<TimedCoordinator> {
 public:
  using Deliver = std::function<void(const std::vector<int>& to, const Frame& frame)>;

  TimedCoordinator(boost::asio::io_context& io, int size, std::vector<Term> terms, Deliver deliver,
                   Coordinator::Quorum quorum = Coordinator::Quorum::everyone)
      : coordinator_(size, std::move(terms), quorum), timer_(io), deliver_(std::move(deliver)) {}
  /// For a quorum of survivors: hears of the renumbering at the moment it happens.
  void on_renumbering(std::function<void(const std::vector<int>& kept)> listener) {
    renumbered_ = std::move(listener);
  }

  void take_newcomers(int first) { coordinator_.take_newcomers(first); }
  Hello numbered(Hello hello) const { return coordinator_.numbered(std::move(hello)); }
  bool awaits_next_shrink(const Hello& hello) const {
    return coordinator_.awaits_next_shrink(hello);
  }
  /// The same as the coordinator's, with what follows delivered before they return.
  std::optional<Refusal> admit(const Hello& hello, std::string_view from);
  bool received(int rank, Frame frame);
  void ended(int rank, std::string_view how);
  void excuse(int rank);
  void finish();
  std::vector<int> awaited() const { return coordinator_.awaited(); }
  void turned_away(std::string who) { coordinator_.turned_away(std::move(who)); }
  void went_unnamed(std::string_view from, std::string_view how) {
    coordinator_.went_unnamed(from, how);
  }
  bool alone(int rank) const { return coordinator_.alone(rank); }
  bool everyone_has_come() const { return coordinator_.everyone_has_come(); }
  int size() const { return coordinator_.size(); }
  /// Delivers nothing any more.
  void stop();

 private:
  void settle();

  Coordinator coordinator_;
  boost::asio::steady_timer timer_;
  Deliver deliver_;
  std::function<void(const std::vector<int>&)> renumbered_;
};

}  // namespace sprat::comm
