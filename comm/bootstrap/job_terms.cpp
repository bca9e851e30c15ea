#include "comm/bootstrap/job_terms.hpp"

#include <xxhash.h>

#include "comm/base/check.hpp"
#include "comm/base/whole_file.hpp"

namespace sprat::comm {
namespace {

/// The version of the frames and what they mean. It is raised with every change that an older
/// version would misunderstand.
constexpr int protocol = 5;

/// Ranks that differ in one of these would choose different plans, or give up at different times.
bool is_job_wide(const ConfigField& field) {
  return field.name == "timeout" || field.name == "staging_bytes" || field.name == "algorithm" ||
         field.name == "order";
}

std::string length_and_hash(std::string_view content) {
  return fmt::format("{} bytes, hash {:016x}", content.size(),
                     XXH3_64bits(content.data(), content.size()));
}

/// Rules may be as long as the environment allows, but all terms of a rank travel in one Hello, and
/// a stranger's Hello is bounded (max_hello_bytes). A long value goes as its beginning, by which
/// people know it, and its hash.
std::string shortened(std::string_view value) {
  constexpr std::size_t most = 4096;
  constexpr std::size_t beginning = 256;
  return value.size() <= most
             ? std::string(value)
             : text(value.substr(0, beginning), "... (", length_and_hash(value), ")");
}

/// A file's length and hash; empty if none can be read. Ranks compare contents, for each host may
/// have the file elsewhere.
std::string digest_of(const std::string& path) {
  if (path.empty()) {
    return "";
  }
  try {
    return length_and_hash(read_setting_file("SPRAT_TUNING", path));
  } catch (const Error&) {  // whoever wants its rules says why
    return "";
  }
}

}  // namespace

std::vector<Term> job_terms(const Config& config) {
  std::vector<Term> terms = {{"sprat version", SPRAT_VERSION},
                             {"control protocol", text(protocol)}};
  for (const ConfigField& field : describe(config)) {
    if (is_job_wide(field)) {
      terms.push_back({field.variable, shortened(field.value)});
    }
  }
  terms.push_back({"content of SPRAT_TUNING", digest_of(config.tuning)});
  return terms;
}

}  // namespace sprat::comm
