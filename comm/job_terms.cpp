#include "comm/job_terms.hpp"

#include "comm/base/check.hpp"

namespace sprat::comm {
namespace {

/// Of the frames and what they mean. Raised with every change that an older version misunderstands.
constexpr int protocol = 2;

bool is_job_wide(const ConfigField& field) {
  return field.name == "timeout" || field.name == "staging_bytes" || field.name == "algorithm";
}

}  // namespace

std::vector<Term> job_terms(const Config& config) {
  std::vector<Term> terms = {{"sprat version", SPRAT_VERSION},
                             {"control protocol", text(protocol)}};
  for (const ConfigField& field : describe(config)) {
    if (is_job_wide(field)) terms.push_back({field.variable, field.value});
  }
  return terms;
}

}  // namespace sprat::comm
