// Where the ranks of a failed job find those that are left.
//
// Every rank keeps a listening socket from joining on, so no death makes the others unreachable for
// each other. It answers nobody until its rank gathers the survivors, as the lowest of them.
// docs/failure.md tells the protocol.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/base/fork.hpp"
#include "comm/bootstrap/bootstrap_place.hpp"
#include "comm/coordinator/rendezvous.hpp"
#include "comm/coordinator/survivors.hpp"
#include "comm/encryption/job_key.hpp"
#include "comm/survival/address_book.hpp"

namespace sprat::comm {

class ControlLoop;
class ControlServer;
struct Hello;
struct Term;

/// Shared by the contexts of one process's life in a job, before and after it shrinks. Ranks are
/// numbered as the job first had them. One thread at a time.
class SurvivorListener {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Listens on a free port. Throws Error{unavailable}.
  static std::shared_ptr<SurvivorListener> open(const Config& config);
  ~SurvivorListener();
  SurvivorListener(const SurvivorListener&) = delete;
  SurvivorListener& operator=(const SurvivorListener&) = delete;

  /// For the other ranks, as they join: where this one listens, and a random secret.
  const std::vector<SocketAddress>& addresses() const { return addresses_; }
  const std::string& secret() const { return token_; }
  /// What all ranks told, once: the addresses of each, and the secret that they share.
  void settle(int rank, AddressBook addresses, std::string token);

  bool settled() const { return all_addresses_.size() > 0; }

  /// This process's number in the job as it first was, and those of the job's ranks as they are.
  int number() const { return number_; }
  const std::vector<int>& members() const { return testimony_.members; }
  /// Where the process with that number listens as long as it lives.
  std::vector<SocketAddress> addresses_of(int number) const { return all_addresses_.of(number); }
  /// It is known to be dead.
  void mourn(int number) { dead_.insert(number); }

  /// A rendezvous of the ranks that come here too, until every other is dead or `deadline` passes.
  /// Their numbers are in `numbers`, by their new rank. Throws Error{lost_peer} if the others went
  /// on without this rank, Error{unavailable} if fewer than `at_least` come, Error{timeout}.
  struct Gathered {
    std::unique_ptr<Rendezvous> rendezvous;
    std::vector<int> numbers;
  };
  Gathered gather(int at_least, Time deadline);
  /// The job consists of these from now on: all of them have met.
  void commit(std::vector<int> numbers);

 private:
  SurvivorListener();
  int leader(Time deadline);
  /// A line to the coordinator of survivors, and what each of them said there.
  struct Assembly {
    std::unique_ptr<Rendezvous> rendezvous;
    std::vector<Blob> testimonies;
  };
  Assembly lead(Time deadline);
  void stop_leading();
  void make_room() const;
  Assembly follow(int leader, Time deadline) const;
  Hello hello() const;

  ProcessMark mark_;
  std::vector<Term> terms_;  ///< As they were on joining.
  Encryption encryption_ = Encryption::off;
  int descriptor_ = -1;  ///< Listens.
  std::vector<SocketAddress> addresses_;
  int number_ = 0;
  AddressBook all_addresses_;  ///< By number.
  std::string token_;
  Testimony testimony_;
  std::set<int> dead_;
  /// The coordinator of the last shrink that this rank led, and its loop. The job that came of it
  /// owns both.
  std::weak_ptr<ControlServer> led_;
  std::weak_ptr<ControlLoop> led_by_;
};

}  // namespace sprat::comm
