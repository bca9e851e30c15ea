// One outcome for all ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "sprat/communicator.hpp"

namespace sprat::fsdp {

/// Collective. If any rank gives an Error, all throw one that names these ranks and says the first
/// one's message.
void agree(Communicator& world, const std::optional<Error>& mine);

/// Collective. What rank `root` gives as `text`, on every rank.
std::string text_of(Communicator& world, const std::string& text, int root);

/// What the job calls `rank` of `world`: what messages name.
int rank_in_job(Communicator& world, int rank);

/// The Error of what `body` throws; nullopt if it returns.
std::optional<Error> outcome_of(const std::function<void()>& body);

}  // namespace sprat::fsdp
