// The control channel of a simulated job: the real coordinator beside rank 0, lines of seeded
// delays.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/coordinator/coordinator.hpp"
#include "comm/coordinator/rendezvous.hpp"
#include "sprat/error.hpp"
#include "tests/system/simulation/simulator.hpp"

namespace sprat::simulation {

class VirtualMember;

/// Knows all ranks. Lines deliver in order, each message after a delay of its own.
class VirtualCoordinator {
 public:
  /// `processes`: the coordinator is in rank 0's process and ends with it; otherwise all share one.
  VirtualCoordinator(Simulator& simulator, int ranks, bool processes);

  std::unique_ptr<comm::Rendezvous> member(int rank);
  /// The rank's process ends, by a kill or in its own time: its line breaks, watchers hear of it.
  void process_ended(int rank);

 private:
  friend class VirtualMember;
  struct Line {
    Time to_coordinator{}, to_rank{};  ///< When the last message arrives.
  };

  void send(int rank, comm::Frame frame);
  void line_ended(int rank, const std::string& how);
  void settle();
  void deliver(int rank, std::function<void(VirtualMember&)> action);
  Time arrival(Time& last);
  void coordinator_ends();

  Simulator& simulator_;
  bool processes_, alive_ = true;
  comm::Coordinator coordinator_;
  std::vector<Line> lines_;
  std::vector<VirtualMember*> members_;  ///< Null once gone.
  std::vector<std::vector<int>> watchers_;
  std::optional<Time> tick_;
};

/// A rank's side; acts as comm::Member does, on tasks instead of threads.
class VirtualMember final : public comm::Rendezvous {
 public:
  VirtualMember(VirtualCoordinator& coordinator, Simulator& simulator, int rank, int size);
  ~VirtualMember() override;
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(standing_.size()); }
  /// Its ranks are of one process, which shares all it hears anyway.
  void set_host(std::uint64_t) override {}
  std::vector<comm::Blob> exchange(comm::Blob mine, std::string_view purpose,
                                   Time deadline) override;
  void listen(std::function<void(const comm::ControlMessage&)> handler) override;
  void say_farewell() noexcept override;
  void tell(comm::ControlMessage message) noexcept override;
  void watch(int rank, pid_t pid) override;

  // --- for the coordinator; outside all tasks ---
  void received(comm::Frame frame);
  void coordinator_ended(const std::string& how);
  void peer_ended(int rank);

 private:
  enum class Standing : std::uint8_t { present, left, lost };
  void control_task();
  void take(comm::ControlMessage message);
  void note_failure(comm::ControlMessage const& message);

  VirtualCoordinator& coordinator_;
  Simulator& simulator_;
  const int rank_;
  std::vector<Standing> standing_;
  std::function<void(const comm::ControlMessage&)> handler_;
  std::deque<comm::ControlMessage> inbox_;
  bool coordinator_gone_ = false, closing_ = false, control_ended_ = false;
  bool said_farewell_ = false, job_failed_ = false;
  std::uint64_t exchanges_ = 0;
  std::optional<comm::Parts> parts_;
  std::optional<Error> failure_;
};

}  // namespace sprat::simulation
