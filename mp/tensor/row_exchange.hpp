// Rows on their way between ranks while others are computed.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "mp/tensor/row_plan.hpp"

namespace sprat::tensor {

/// Operations under way. Waits for all of them at the end, however it ends: their memory is the
/// caller's again then.
class InFlight {
 public:
  InFlight() = default;
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  void add(Work work) { works_.push_back(std::move(work)); }
  /// For that number `index` added. Once more does nothing.
  void wait(std::size_t index);
  /// The rest is the caller's to wait for.
  Work release();

 private:
  std::vector<Work> works_;
};

/// Rows of `width` elements that are computed by chunks, and exchanged so.
struct RowExchange {
  Group& group;
  const RowPlan& plan;
  int width = 0;
  std::span<float> slots;  ///< slots_count() elements.
};

/// Computes this rank's contribution to rows, which follow each other from `to` on.
using Contribute = std::function<void(Part rows, float* to)>;
/// Takes sums of rows, which are counted from the first of this rank's own; may change them.
using TakeSums = std::function<void(Part own, float* sums)>;
/// Sums contributions over the group; each chunk is taken once it is there.
void sum_rows(const RowExchange& exchange, const Contribute& contribute, const TakeSums& take);
/// own <- the sums of this rank's own rows. Slots and `own` are in use until the Work is done.
Work start_sums(const RowExchange& exchange, const Contribute& contribute, float* own);

/// whole <- the own rows of all ranks, of which this one has `own`. Calls use(rows) as soon as they
/// are there, its own first. Without own rows it calls use() once: `own` is all of them.
void gather_rows(const RowExchange& exchange, const float* own, float* whole,
                 const std::function<void(Part rows)>& use);
/// The same of all at once, for use when the Work is done; needs no slots.
Work start_gather(const RowExchange& exchange, const float* own, float* whole);

}  // namespace sprat::tensor
