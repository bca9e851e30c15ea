// When a rank multiplied and when something of its own travelled, on one axis.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/mp.hpp"

namespace sprat::bench {

/// Seconds; as steady_clock counts them, or from a moment that is said.
struct Span {
  double begin = 0, end = 0;
};

/// Multiplies by another backend, and remembers when.
class WatchedGemm final : public GemmBackend {
 public:
  explicit WatchedGemm(std::shared_ptr<const GemmBackend> gemm) : gemm_(std::move(gemm)) {}
  const std::string& name() const noexcept override { return gemm_->name(); }
  int sum_pieces() const noexcept override { return gemm_->sum_pieces(); }
  void multiply(const MatrixProduct& product) const override;

  /// Since it was last asked. By the thread that multiplies.
  std::vector<Span> take() const { return std::exchange(spans_, {}); }

 private:
  std::shared_ptr<const GemmBackend> gemm_;
  mutable std::vector<Span> spans_;
};

double now();

/// Of one rank, from the same moment on.
struct RankSpans {
  std::vector<Span> multiplies, travels;
};
/// Collectives of this process that were called between the two moments, from call to end. The
/// record of a communicator has room for 32.
std::vector<Span> collectives_between(double begin, double end);
/// The same spans, counted from `moment`.
RankSpans from(double moment, RankSpans spans);
/// Collective: those of all ranks, on every rank.
std::vector<RankSpans> all_ranks(Communicator& world, const RankSpans& own);

/// Of the time in which anything travelled, the part in which the rank multiplied.
double hidden_share(const RankSpans& spans);

/// A line for what each rank multiplies and some for what travels, a column for each part of the
/// time. Pieces have a letter or a digit each.
std::string drawing(const std::vector<RankSpans>& ranks);

/// What chrome://tracing and ui.perfetto.dev open.
class ChromeTrace {
 public:
  /// Behind what was added before.
  void add(const std::string& pass, const std::vector<RankSpans>& ranks);
  std::string text() const;

 private:
  struct Event {
    std::string name;
    std::size_t rank = 0, lane = 0;
    Span span;
  };
  std::vector<Event> events_;
  double end_ = 0;
};

}  // namespace sprat::bench
