// What every rank of a job must agree on before it may join.
#pragma once

#include <vector>

#include "comm/coordinator/control_frame.hpp"
#include "sprat/config.hpp"

namespace sprat::comm {

/// Versions, and those settings that decide what ranks do together. Of a file its content
/// counts. Short enough for a Hello, whatever the configuration is.
std::vector<Term> job_terms(const Config& config);

}  // namespace sprat::comm
