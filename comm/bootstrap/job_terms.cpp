#include "comm/bootstrap/job_terms.hpp"

#include <xxhash.h>

#include <fstream>
#include <iterator>

#include "comm/base/check.hpp"

namespace sprat::comm {
namespace {

/// Of the frames and what they mean. Raised with every change that an older version misunderstands.
constexpr int protocol = 2;

bool is_job_wide(const ConfigField& field) {
  return field.name == "timeout" || field.name == "staging_bytes" || field.name == "algorithm" ||
         field.name == "order";
}

/// A file's length and hash; empty if there is none.
std::string digest_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content(std::istreambuf_iterator<char>(file), {});
  if (!file.is_open()) {
    return "";
  }
  return fmt::format("{} bytes, hash {:016x}", content.size(),
                     XXH3_64bits(content.data(), content.size()));
}

}  // namespace

std::vector<Term> job_terms(const Config& config) {
  std::vector<Term> terms = {{"sprat version", SPRAT_VERSION},
                             {"control protocol", text(protocol)}};
  for (const ConfigField& field : describe(config)) {
    if (is_job_wide(field)) {
      terms.push_back({field.variable, field.value});
    }
  }
  terms.push_back({"content of SPRAT_TUNING", digest_of(config.tuning)});
  return terms;
}

}  // namespace sprat::comm
