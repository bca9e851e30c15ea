// How the ranks of a job find each other, and how they tell each other of failures afterwards.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/blob.hpp"
#include "sprat/config.hpp"
#include "sprat/store.hpp"

namespace sprat::comm {

/// One line on the control channel. Every rank talks to the coordinator (beside rank 0); the
/// coordinator talks to all.
struct ControlMessage {
  enum class Kind : std::uint8_t {
    lost,  ///< coordinator -> all, watcher -> coordinator: `rank` died or left without a farewell;
           ///< text says how it is known.
    failed,   ///< rank -> coordinator -> all: `rank` failed the whole job; code is an ErrorCode,
              ///< text its message.
    stalled,  ///< rank -> coordinator: `rank` waits in (comm, sequence), payload is its signature,
              ///< text the members as encode_ranks() has them; empty: all ranks.
              ///< Or for a message: sequence is a MessageQuestion, which only its peer is asked.
    query,    ///< coordinator -> members: what did you call at (comm, sequence)?
    answer,   ///< rank -> coordinator: payload is that signature; code 0 called, 1 not yet, 2
              ///< forgotten, 3 not a member, 4 never: it has freed that communicator.
    verdict,  ///< coordinator -> all: at (comm, sequence) code is mismatch (text, rank), or, to who
              ///< asked, timeout (payload: a Lateness).
    farewell,       ///< rank -> coordinator -> all: `rank` leaves in good order. From the
                    ///< coordinator of several at once: see farewells.hpp.
    domain_failed,  ///< rank -> coordinator -> all: communicators of domain `comm` have failed;
                    ///< code and text as of failed. sequence 1: a rank revoked them.
    gather,    ///< rank -> coordinator: its part of what members of `comm` give each other in round
               ///< `sequence`; payload is a GatherPart.
    gathered,  ///< coordinator -> those who came: payload is a GatherResult.
  };
  Kind kind = Kind::lost;
  int rank = -1;
  int code = 0;
  std::uint64_t comm = 0;
  std::uint64_t sequence = 0;
  std::string text;
  Blob payload;
};

/// Payload of a timeout verdict. Both ascending.
struct Lateness {
  std::vector<int> late;    ///< Have not called, as far as they have said.
  std::vector<int> silent;  ///< Do not answer, whether they have called or not.
  bool operator==(const Lateness&) const = default;
};
Blob encode(const Lateness& lateness);
Lateness decode_lateness(const Blob& payload);

/// A rank's membership of the job. Made by open_rendezvous(); exchange() is for the joining thread,
/// the rest for any thread.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;  ///< Says farewell, unless the job failed.
  /// Says it now: this rank calls nothing any more. It hears others' farewells until the end.
  virtual void say_farewell() noexcept = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Ranks that say the same number may share memory: what is long and goes to all of them then
  /// travels once. Until it is called, and if it is zero: with nobody. For the joining thread.
  virtual void set_host(std::uint64_t number) = 0;
  /// Collective: every rank's blob, by rank. Throws Error{timeout} listing who came and who did
  /// not, or Error{lost_peer} naming who died while joining, once `deadline` passes or that
  /// happens.
  virtual std::vector<Blob> exchange(Blob mine, std::string_view purpose,
                                     std::chrono::steady_clock::time_point deadline) = 0;
  /// From now on `handler` gets each message from the coordinator, those that came before first, on
  /// the control thread. Once only. It may tell(), and must not wait for another rank or destroy
  /// this.
  virtual void listen(std::function<void(const ControlMessage&)> handler) = 0;
  /// Sends to the coordinator. Never blocks, never throws; dropped if the coordinator is gone.
  virtual void tell(ControlMessage message) noexcept = 0;
  /// Watches a process of this host. Unless its farewell arrives within 50 ms of its death, that is
  /// told to `handler` and to the coordinator: as `lost`, or as `farewell` once the coordinator has
  /// left in good order, since then nobody can know how the process ended.
  virtual void watch(int rank, pid_t pid) = 0;
};

/// How this process was launched, as far as it can be told without talking to anyone.
struct Launch {
  std::string by = {};     ///< "SPRAT_*", "PMIx", "torchrun", "alone".
  int rank = 0, size = 1;  ///< Size -1: only PMIx itself can tell.
  /// tcp://host:port, file://path, pmix://namespace, or empty when alone.
  std::string rendezvous = {};
  int ports = 1;         ///< tcp: rank 0 listens on the first free one of this many from `port` on.
  std::string job = {};  ///< The launcher's name of this job, if it has one.
};
/// Pure: `environment` looks a variable up. Explicit SPRAT_*, then PMIx, then torchrun's, else
/// alone. Throws Error{invalid_argument} where what is set is not enough, or is not a number.
Launch detect_launch(const Config& config,
                     const std::function<const char*(const char*)>& environment);

/// Joins. Throws Error{timeout}, Error{unavailable} or Error{invalid_argument}.
std::unique_ptr<Rendezvous> open_rendezvous(const Config& config);
/// As rank config.rank of config.size, which meet in `store`, whatever launched them.
std::unique_ptr<Rendezvous> open_rendezvous(const Config& config, Store& store);
/// A job that ranks who know each other form with others who come later.
struct Growth {
  int rank = -1;      ///< This rank's number among those who know each other; -1: a newcomer.
  int members = 0;    ///< Of these.
  int newcomers = 0;  ///< Who get the numbers after them, as they come.
  /// Called once this rank can tell others something, and before it waits for them. What it returns
  /// goes once all have come, or before the rendezvous does.
  std::function<std::shared_ptr<void>(Rendezvous&)> watch = {};
};
/// Joins such a job at config.rendezvous, whatever launched the rank; the size is a newcomer's to
/// learn. Throws as the others do, Error{lost_peer} naming a rank that has gone.
std::unique_ptr<Rendezvous> open_rendezvous(const Config& config, const Growth& growth);
std::unique_ptr<Rendezvous> open_rendezvous(const Config& config, const Growth& growth,
                                            Store& store);
/// A job of `size` ranks that are threads of this process: element r is for rank r's thread.
std::vector<std::unique_ptr<Rendezvous>> open_rendezvous_in_process(int size);

}  // namespace sprat::comm
