// What the ranks of a Fusion must agree on: its terms when it is made, what is absent in each step.
#include "collectives/fusion/fusion_agreement.hpp"

#include <xxhash.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "collectives/communicator_impl.hpp"
#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"

namespace sprat::collectives {
namespace {

/// Stands for a value of any length when ranks compare: the values themselves travel only if they
/// differ. Plain numbers, as it goes by all_gather.
struct Digest {
  std::uint64_t hash, bytes;
  bool operator==(const Digest&) const = default;
};

/// The digests of what each rank gives.
std::vector<Digest> exchange(Communicator& ranks, std::span<const std::byte> mine,
                             const Options& options) {
  const Digest digest{XXH3_64bits(mine.data(), mine.size()), mine.size()};
  std::vector<Digest> all(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather({&digest, 2, DType::u64}, {all.data(), 2 * all.size(), DType::u64}, options)
      .wait();
  return all;
}

const std::vector<int>& world_ranks(Communicator& ranks) {
  return ranks.impl().executor.membership().world_ranks;
}

/// `rank` is one of those that differ, in the job's numbering.
[[noreturn]] void differ(Communicator& ranks, const std::string& message, int rank) {
  const Error error(ErrorCode::mismatch, text(ranks.name(), ": ", message), rank);
  ranks.impl().context->fail(*ranks.impl().executor.scope(), error);
  throw error;
}

std::string broadcast_text(Communicator& ranks, std::string mine, std::size_t bytes, int root,
                           const Options& options) {
  mine.resize(bytes);
  ranks.broadcast({mine.data(), bytes, DType::u8}, root, options).wait();
  return mine;
}

/// Takes the first line off.
std::string_view take_line(std::string_view& lines) {
  const std::size_t end = lines.find('\n');
  const std::string_view line = lines.substr(0, end);
  lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
  return line.empty() ? "nothing more" : line;
}

}  // namespace

std::string fusion_terms(std::span<const FusionParameter> parameters,
                         const FusionOptions& options) {
  std::string terms = text("buckets of ", options.bucket_bytes, " bytes, ", describe(options.op));
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const auto& [count, dtype] = parameters[index];
    terms += text("\nparameter ", index, " of ", count, " ", name(dtype));
  }
  return terms;
}

FusionDifference first_difference(const std::string& one, const std::string& other) {
  std::string_view rest = one, other_rest = other;
  for (;;) {
    const std::string_view line = take_line(rest), other_line = take_line(other_rest);
    if (line != other_line || (rest.empty() && other_rest.empty())) {
      return {std::string(line), std::string(other_line)};
    }
  }
}

std::string absence_text(std::span<const Absence> absences, std::span<const int> names) {
  std::map<std::vector<int>, std::vector<int>> parameters_by_ranks;
  for (std::size_t index = 0; index < absences.front().size(); ++index) {
    std::vector<int> lacking;
    for (std::size_t rank = 0; rank < absences.size(); ++rank) {
      if (absences[rank][index] != 0) {
        lacking.push_back(names[rank]);
      }
    }
    if (!lacking.empty() && lacking.size() < absences.size()) {
      std::ranges::sort(lacking);
      parameters_by_ranks[lacking].push_back(static_cast<int>(index));
    }
  }
  std::string out;
  for (const auto& [ranks, parameters] : parameters_by_ranks) {
    out += text(out.empty() ? "" : "; ", comm::list_text("parameter", parameters), " on ",
                comm::ranks_text(ranks));
  }
  return out;
}

void agree_on_terms(Communicator& ranks, const std::string& terms, const Options& options) {
  const auto digests = exchange(ranks, std::as_bytes(std::span(terms)), options);
  const auto odd = std::ranges::find_if(
      digests, [&](const Digest& digest) { return digest != digests.front(); });
  if (odd == digests.end()) {
    return;
  }
  // Every rank has the same digests, and so takes part in the same two broadcasts. They carry the
  // terms of rank 0 and of the first rank that differs, for the error to say what is different.
  const int rank = static_cast<int>(odd - digests.begin());
  const std::string first_terms = broadcast_text(ranks, terms, digests.front().bytes, 0, options);
  const std::string odd_terms = broadcast_text(ranks, terms, odd->bytes, rank, options);
  const auto [here, there] = first_difference(first_terms, odd_terms);
  const comm::Context& context = *ranks.impl().context;
  const int first = world_ranks(ranks).front();
  const int other = world_ranks(ranks)[static_cast<std::size_t>(rank)];
  differ(ranks,
         text(context.describe_peer(other), " makes it with ", there, ", ",
              context.describe_peer(first), " with ", here,
              "; parameters, their order, buckets and op must be the same on every rank"),
         other);
}

void agree_on_absence(Communicator& ranks, const Absence& absence, const Options& options) {
  const auto digests = exchange(ranks, std::as_bytes(std::span(absence)), options);
  const auto odd = std::ranges::find_if(
      digests, [&](const Digest& digest) { return digest != digests.front(); });
  if (odd == digests.end()) {
    return;
  }
  Absence all(absence.size() * digests.size());
  ranks.all_gather(elements(absence), elements(all), options).wait();
  std::vector<Absence> absences;
  for (auto at = all.begin(); at != all.end(); at += static_cast<std::ptrdiff_t>(absence.size())) {
    absences.emplace_back(at, at + static_cast<std::ptrdiff_t>(absence.size()));
  }
  differ(
      ranks,
      text("flush() finds parameters that were put on some ranks only; absent are ",
           absence_text(absences, world_ranks(ranks)), "; put the same parameters on every rank"),
      world_ranks(ranks)[static_cast<std::size_t>(odd - digests.begin())]);
}

}  // namespace sprat::collectives
