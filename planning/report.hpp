// A search's result for people, and as configurations that runs take.
#pragma once

#include <string>

#include "planning/search.hpp"

namespace sprat::planning {

/// Tables: the best plan with memory and time by part, what is next and all others within the
/// tolerance, advice. Where nothing fits: what holds least, by part, and what would help.
std::string plan_text(const PlanRequest& request, const SearchResult& result);
/// The configuration of `sprat train`, as JSON, with the plan in comments. `data`: its text. Throws
/// Error{invalid_argument} if the trainer's GPT has no such shape.
std::string train_json(const PlanRequest& request, const Plan& plan, const std::string& data);
/// What sprat.torch.smp.init takes: SMP v1's keys where the model is a pipeline or shards optimizer
/// state alone, else v2's. Throws Error{invalid_argument} with smp_refusal().
std::string smp_json(const PlanRequest& request, const Plan& plan);
/// "40.0 GiB".
std::string gibibytes(double bytes);

}  // namespace sprat::planning
