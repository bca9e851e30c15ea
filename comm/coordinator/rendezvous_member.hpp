// A rank's side of the control channel, the same whatever carries it.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/coordinator/control_frame.hpp"
#include "comm/coordinator/control_loop.hpp"
#include "comm/coordinator/coordinator.hpp"
#include "comm/coordinator/rendezvous.hpp"
#include "comm/memory/segment.hpp"
#include "sprat/error.hpp"

namespace sprat::comm {

/// A rank's line to the coordinator. What comes back goes to Member::received() and
/// Member::ended().
class CoordinatorClient {
 public:
  virtual ~CoordinatorClient() = default;
  /// On the loop's thread. Dropped if the coordinator is gone.
  virtual void send(const Frame& frame) = 0;
  /// Ends the line, once, after what was sent has gone out; waits for that within bounds.
  /// Not on the loop's thread. Nothing is received afterwards.
  virtual void close() noexcept = 0;
};

class ProcessWatch;

/// A rank's side of a handout (handout.hpp): parts in memory that others of its host read. One
/// thread at a time.
class PartsShelf {
 public:
  /// The parts that come next are to be shared with others of this host.
  void expect() { expected_ = true; }
  /// Of parts that have come: where they lie, if they were to be shared; descriptor -1 if there is
  /// no memory for that.
  std::optional<PartsPlace> put(const Parts& parts);
  /// Nobody needs them any more.
  void clear() { segment_.reset(); }
  /// Those that another rank of this host has put there. Null if they cannot be read.
  static std::optional<Parts> read(const PartsPlace& place);

 private:
  bool expected_ = false;
  std::unique_ptr<Segment> segment_;
};

class Member final : public Rendezvous {
 public:
  /// `loop` is shared by the ranks of a process: whoever is destroyed last ends it.
  Member(int rank, int size, std::shared_ptr<ControlLoop> loop,
         Coordinator::Quorum quorum = Coordinator::Quorum::everyone);
  ~Member() override;
  /// Before anything else.
  void attach(std::unique_ptr<CoordinatorClient> client) { client_ = std::move(client); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(standing_.size()); }
  void set_host(std::uint64_t number) override { host_ = number; }
  std::vector<Blob> exchange(Blob mine, std::string_view purpose,
                             std::chrono::steady_clock::time_point deadline) override;
  void listen(std::function<void(const ControlMessage&)> handler) override;
  void say_farewell() noexcept override;
  void tell(ControlMessage message) noexcept override;
  void watch(int rank, pid_t pid) override;

  // --- for the coordinator client, on the loop's thread ---
  void received(Frame frame);
  /// The line has ended from the coordinator's side; `how` is for people.
  void ended(std::string_view how);

 private:
  enum class Standing : std::uint8_t { present, left, lost };

  void send_farewell();
  void renumber(const Parts& testimonies);
  void receive(Parts parts);
  void receive(const PartsPlace& place);
  void receive(ControlMessage message);
  void take(ControlMessage message);
  void process_ended(int rank, pid_t pid);
  void dispatch(const ControlMessage& message) noexcept;
  /// Ends exchanges. True if it is the job's first failure.
  bool note_failure(const ControlMessage& message);

  int rank_;  ///< Changes once, when survivors have gathered, before exchange() returns.
  std::uint64_t host_ = 0;  ///< The joining thread's.
  bool gathering_;          ///< The loop's.
  const std::shared_ptr<ControlLoop> loop_;
  std::unique_ptr<CoordinatorClient> client_;  ///< The loop's.

  // The loop's.
  std::vector<Standing> standing_;
  std::function<void(const ControlMessage&)> handler_;
  std::vector<ControlMessage> backlog_;  ///< What came before listen().
  std::map<int, std::shared_ptr<ProcessWatch>> watches_;
  PartsShelf shelf_;
  std::uint64_t last_parts_ = 0;  ///< The ordinal of those that came last.
  bool coordinator_gone_ = false;
  bool said_farewell_ = false;

  std::mutex mutex_;  ///< Guards the rest.
  std::condition_variable changed_;
  std::uint64_t exchanges_ = 0;
  std::optional<Parts> parts_;
  std::optional<Error> failure_;  ///< The first one: no exchange succeeds any more.
  bool listens_ = false;          ///< All have joined.
  bool job_failed_ = false;       ///< No farewell is said.
};

}  // namespace sprat::comm
