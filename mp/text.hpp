// Schedules as text, and as the CSV of torch.distributed.pipelining.
//
// An action is a stage, what is done, and a micro-batch if it is of one: "2F0", "1SEND_F3",
// "0UNSHARD"; an overlap is "(0F4;3B1)OVERLAP_F_B". Beside torch's words there are RECOMPUTE, STORE
// and LOAD.
#pragma once

#include <string>
#include <string_view>

#include "mp/schedule.hpp"

namespace sprat::mp {

/// A line for each rank, actions apart by one space.
std::string to_text(const Schedule& schedule);
/// A row for each rank, as torch's _dump_csv writes it to the byte; idle cells it has none.
std::string to_csv(const Schedule& schedule);

/// Reads what to_text writes. Spaces and empty lines at the end do not matter. Stages are numbered
/// from 0 and lie where their actions are, so each needs one. Throws Error{invalid_argument} naming
/// row and column, both from 1, and what would be right.
Schedule schedule_of_text(std::string_view text, std::string_view name);
/// Reads what to_csv and torch's _dump_csv write; empty cells, by which torch says that a rank is
/// idle, are left out. Throws as schedule_of_text.
Schedule schedule_of_csv(std::string_view text, std::string_view name);

}  // namespace sprat::mp
