// Brings the rows that this rank writes together: its own elements, and those that others send.
#pragma once

#include <span>
#include <vector>

#include "checkpoint/plan/save_plan.hpp"
#include "fsdp/model_state.hpp"
#include "sprat/communicator.hpp"

namespace sprat::fsdp {

/// The data of this rank's files, in the order of the plan, as views of the held values and of
/// what was received.
struct GatheredRows {
  std::vector<float> received;
  std::vector<std::vector<std::span<const float>>> files;
};

/// Collective: one exchange.
GatheredRows gather_rows(Communicator& world, const ModelState& held,
                         const std::vector<SavedFile>& plan);

/// Copies all that `rows` views into `memory`, and views that instead.
void take_snapshot(GatheredRows& rows, std::vector<float>& memory);

}  // namespace sprat::fsdp
