// What the ranks of a Fusion must agree on: its terms when it is made, what is absent in each step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sprat/fusion.hpp"

namespace sprat::collectives {

/// All that must agree, one line for the buffers and one for each parameter.
std::string fusion_terms(std::span<const FusionParameter> parameters, const FusionOptions& options);
/// The first line in which two ranks' terms differ, as either has it; "nothing more" at its end.
struct FusionDifference {
  std::string one, other;
};
FusionDifference first_difference(const std::string& one, const std::string& other);

/// For each parameter, whether it is absent in this step.
using Absence = std::vector<std::uint8_t>;
/// "parameters 3, 5-7 on rank 1; parameter 9 on ranks 0, 2": which parameters only some ranks lack,
/// and which ranks. Each rank's absence, by the numbers in `names`.
std::string absence_text(std::span<const Absence> absences, std::span<const int> names);

// Collective. Each throws Error{mismatch} on every rank, and fails the job, if ranks differ.
void agree_on_terms(Communicator& ranks, const std::string& terms, const Options& options);
void agree_on_absence(Communicator& ranks, const Absence& absence, const Options& options);

}  // namespace sprat::collectives
