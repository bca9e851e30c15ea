// Copies of whole pieces, through the caches or past them.
#pragma once

#include <cstddef>

#include "collectives/plan/problem.hpp"

namespace sprat::collectives {

/// No overlap. `past_cache`: by stores that leave no trace in any cache; they are visible to
/// whoever sees what this thread stores afterwards.
void copy(std::byte* to, const std::byte* from, std::size_t bytes, bool past_cache) noexcept;

/// Whether a call's results go past the caches of a host: where they would push out more than they
/// keep, or the lines that they replace are in peers' caches and would have to be fetched first.
/// `oversubscribed`: ranks share cores, and with them caches.
bool goes_past_cache(const Problem& problem, bool oversubscribed);
/// Whether a rank sends what it has reduced to other hosts, at once and so out of the caches.
bool sends_results(const Problem& problem);

}  // namespace sprat::collectives
