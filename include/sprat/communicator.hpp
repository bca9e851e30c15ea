// A group of ranks that do things together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/buffer.hpp"
#include "sprat/config.hpp"
#include "sprat/error.hpp"
#include "sprat/export.hpp"
#include "sprat/reduction.hpp"
#include "sprat/store.hpp"
#include "sprat/trace.hpp"

namespace sprat {

/// recv() from whichever rank's message comes first.
inline constexpr int any_source = -1;

/// An operation under way. Dropping it does not cancel the operation.
/// The operation's buffers belong to the library until wait() returns or throws.
/// In a child of fork() its parent's are over: done() is true, the rest throws Error{unavailable}.
class SPRAT_API Work {
 public:
  class State;

  Work() = default;  ///< Already done.
  explicit Work(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
  /// Blocks until done, driving the operation. Throws the operation's Error.
  void wait();
  /// True once done; makes a little progress otherwise. Throws the operation's Error.
  bool test();
  /// True once done, well or not. Makes no progress.
  bool done() const noexcept;
  /// Of a receive that is done: the communicator's rank that sent. Otherwise -1.
  int source() const noexcept;
  /// Calls `notice` once when done, well or not: at once if it is, else from whichever thread
  /// drives, when that holds no lock of Sprat's. It is for waking a thread of one's own: it must
  /// not block, throw or call Sprat. Once a Work.
  void on_done(std::function<void()> notice);

  /// One Work for several operations, of any communicators: done when all of them are. Its wait()
  /// returns once none of them is under way any more, and throws the first Error.
  friend SPRAT_API Work all_of(std::vector<Work> works);
  /// Blocks until one of `works` is done, well or not; its index. Its wait() then tells at once
  /// which. The others go on.
  friend SPRAT_API std::size_t wait_any(std::span<Work> works);

 private:
  std::vector<State*> states() const;
  void require_here() const;  ///< Throws Error{unavailable} in a child of fork().

  std::shared_ptr<State> state_;
  std::vector<std::shared_ptr<State>> more_;  ///< What all_of() adds.
};

SPRAT_API Work all_of(std::vector<Work> works);
SPRAT_API std::size_t wait_any(std::span<Work> works);

/// How one operation is carried out.
struct Options {
  /// Deadline of this operation; the configuration's otherwise.
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;
  /// The caller waits at once: the call itself waits, and no helper thread is woken for it.
  bool blocking = false;
  /// Its values belong into digests (docs/diff.md): false of times, file names and what else
  /// differs from run to run. Equal on all ranks.
  bool digested = true;
};

/// How a communicator that is made of another one fails.
enum class Failing {
  alone,    ///< By itself: the other one goes on when it fails, and it when the other one does.
  together  ///< With the other one, and all that fails together with that.
};

/// Ranks that call the same operations in the same order. Any thread may call; calls serialise.
/// Counts are elements. Memory may be private or sprat::Memory; it may differ between ranks.
/// Broken contracts throw Error{invalid_argument} before any byte moves; later errors are in Work.
class SPRAT_API Communicator {
 public:
  class Impl;

  /// Joins the job described by `config`. Blocks at most config.join_timeout.
  static Communicator join(const Config& config = Config::from_environment());
  /// As rank config.rank of config.size, which meet in a store of their framework, whatever
  /// launched them. `store` is used in this call only.
  static Communicator join(const Config& config, Store& store);

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const noexcept;
  int size() const noexcept;
  const std::string& name() const noexcept;
  /// Dense host index of each rank: equal where ranks share memory.
  const std::vector<int>& hosts() const noexcept;

  /// data <- op over ranks of data.
  Work all_reduce(Elements data, const Reduction& op = ReduceOp::sum, Options options = {});
  /// out <- op over ranks of in. Equal counts and dtypes, or out is f32 and in a narrower float;
  /// of user operations equal ones.
  Work all_reduce(ConstElements in, Elements out, const Reduction& op = ReduceOp::sum,
                  Options options = {});
  /// whole <- parts in rank order; whole.count == size() * part.count. In place: part at its block.
  Work all_gather(ConstElements part, Elements whole, Options options = {});
  /// part <- op over ranks of block rank() of whole. In place: part at its block. out may be f32.
  Work reduce_scatter(ConstElements whole, Elements part, const Reduction& op = ReduceOp::sum,
                      Options options = {});
  /// data <- root's data.
  Work broadcast(Elements data, int root, Options options = {});
  /// Block q of out <- block rank() of rank q's in; counts are size() blocks. In place: out is in.
  Work all_to_all(ConstElements in, Elements out, Options options = {});

  // With a root: its buffer that the others lack is not looked at on them and may be null there.
  /// Root's out <- op over ranks of in. Types as for all_reduce. In place on the root: out is in.
  Work reduce(ConstElements in, Elements out, int root, const Reduction& op = ReduceOp::sum,
              Options options = {});
  /// Root's whole <- parts in rank order, as many elements each. In place: part at its block.
  Work gather(ConstElements part, Elements whole, int root, Options options = {});
  /// part <- this rank's block of root's whole, as many elements each. In place: part at its block.
  Work scatter(ConstElements whole, Elements part, int root, Options options = {});

  // Of blocks that differ in length: counts[r] elements for rank r, zero allowed, one block after
  // the other in rank order.
  /// whole <- parts in rank order. The same counts on every rank. In place: part at its block.
  Work all_gatherv(ConstElements part, Elements whole, std::span<const std::size_t> counts,
                   Options options = {});
  /// part <- op over ranks of block rank() of whole. The same counts on every rank. In place: part
  /// at its block. Types as for reduce_scatter.
  Work reduce_scatterv(ConstElements whole, Elements part, std::span<const std::size_t> counts,
                       const Reduction& op = ReduceOp::sum, Options options = {});
  /// gather and scatter whose counts only the root knows, the others no more than their own part.
  /// A part of another length than the root expects is Error{mismatch} everywhere.
  Work gatherv(ConstElements part, Elements whole, std::span<const std::size_t> counts, int root,
               Options options = {});
  Work scatterv(ConstElements whole, Elements part, std::span<const std::size_t> counts, int root,
                Options options = {});
  /// Block q of out <- block rank() of rank q's in; in_counts[q] here is out_counts[rank()] there,
  /// or Error{mismatch} everywhere. in and out are disjoint.
  Work all_to_allv(ConstElements in, Elements out, std::span<const std::size_t> in_counts,
                   std::span<const std::size_t> out_counts, Options options = {});

  /// Matched by (source, tag), in order. A recv must be as long as its message; it may be from
  /// any_source. A send of more than 16 KiB, or far ahead of its receives, ends with its receive.
  Work send(ConstElements data, int to, int tag = 0, Options options = {});
  Work recv(Elements data, int from, int tag = 0, Options options = {});
  /// Returns once every rank has called it.
  void barrier(Options options = {});
  /// The same, done once every rank has called it or barrier().
  Work start_barrier(Options options = {});

  /// Collective. Ranks of one `color` form a communicator ordered by (key, rank); color < 0: none.
  std::optional<Communicator> split(int color, int key = 0, std::string_view name = "",
                                    Failing failing = Failing::alone);
  /// Collective over `ranks` alone, in the order of the new ranks: nobody else takes part or need
  /// know. Every member gives the same list and name; two groups that are made at the same time
  /// by ranks of both have different names.
  Communicator create_group(std::span<const int> ranks, std::string_view name,
                            Options options = {});
  /// Collective. The same ranks, with operations of their own.
  Communicator duplicate(std::string_view name = "", Failing failing = Failing::alone);
  /// Collective over the ranks that are left: they alone, in the same order, after this
  /// communicator has failed, or to start afresh. Ranks that are dead are not waited for; those
  /// that live and do not call within `patience` (the configuration's join_timeout) are left
  /// behind. This communicator stays failed; sprat::Memory stays.
  /// Of the world, which join() or shrink() returned, and of one with all ranks of a job that has
  /// failed as a whole: a job of them alone, and all communicators of the old job fail. Of any
  /// other: a communicator, in the same job, whose other communicators go on meanwhile.
  /// Throws Error{unavailable} if fewer than `at_least` ranks are left, Error{lost_peer} if the
  /// others went on without this rank.
  Communicator shrink(int at_least = 1,
                      std::optional<std::chrono::milliseconds> patience = std::nullopt);
  /// Collective over these ranks and `newcomers` others, who call join_growing() with the same
  /// store: a communicator of all of them, in a job of their own. These ranks keep their numbers;
  /// newcomers, new processes or ranks that were lost before, have those after them, as they come.
  /// This communicator stays as it is, goes on meanwhile, and also if this throws. Whoever has not
  /// come within `patience` (the configuration's join_timeout) is named by Error{timeout}, who dies
  /// meanwhile by Error{lost_peer}, and a newcomer whose version or settings differ by
  /// Error{mismatch}, on all ranks. A store serves one growth at a time.
  Communicator grow(int newcomers, Store& store,
                    std::optional<std::chrono::milliseconds> patience = std::nullopt);
  /// The same where newcomers have no store, only an address: file://path, in a folder that all
  /// see, or tcp://host:port, where host is rank 0's and the port is free there.
  Communicator grow(int newcomers, std::string_view rendezvous,
                    std::optional<std::chrono::milliseconds> patience = std::nullopt);
  /// As a newcomer to a communicator that grows, which may begin to later. Blocks at most
  /// config.join_timeout; rank and size of `config` do not matter.
  static Communicator join_growing(const Config& config, Store& store);
  /// By config.rendezvous.
  static Communicator join_growing(const Config& config);
  /// What this rank calls from here on, on any communicator, belongs to this step: `sprat diff`
  /// tells places by it (docs/diff.md). Every rank calls it at the same place of its calls here:
  /// if SPRAT_DIGESTS_CHECK asks for it at this step, ranks compare what all must have alike.
  /// Throws Error{mismatch} if a rank differs, and fails the job. Otherwise nothing is sent. Not
  /// below 0.
  void mark_step(std::int64_t step);
  /// Fails this communicator on all its ranks, with Error{aborted} and `reason`. Of the world, and
  /// of what fails together with it: the whole job.
  void abort(std::string_view reason);
  /// Ends what is under way on this communicator, on all its ranks, with Error{aborted}; later
  /// calls throw it too. The ranks stay: shrink() makes a new communicator of them. Other
  /// communicators go on, the world's as well; not over libfabric between hosts, where the job ends
  /// (docs/failure.md). Leaves no flight record.
  void revoke(std::string_view reason = "");
  /// What failed this communicator; nothing while it is well. Never blocks.
  std::optional<Error> failure() const;
  /// What this rank did last, on every communicator of the job, as JSON: what SPRAT_FLIGHT_RECORDER
  /// keeps when a job fails. Any time.
  std::string flight_record() const;
  /// Seconds this rank's threads have spent inside wait() so far: exposed communication.
  double seconds_waited() const noexcept;
  /// Where this rank notes what it does when, if Config::trace asks for it; null: nowhere. It lives
  /// as long as the rank has communicators.
  Tracer* tracer() const noexcept;
  /// Collective, of a communicator of all ranks. Rank 0 writes what they noted so far into `path`,
  /// Config::trace if it is empty, on its own clock (docs/tracing.md). Nothing happens where nobody
  /// notes anything. A rank that ends without it, or fails, leaves its part beside the file
  /// instead. Throws Error{unavailable} on every rank if the file cannot be written.
  void write_trace(std::string_view path = "");

  Impl& impl() noexcept { return *impl_; }  ///< For the library itself.
  explicit Communicator(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Runs `body` on `size` ranks, threads of this process, and joins them. Rethrows the first error.
/// A rank that throws aborts the others.
SPRAT_API void run_virtual_ranks(int size, const Config& config,
                                 const std::function<void(Communicator&)>& body);

}  // namespace sprat
