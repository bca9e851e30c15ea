// What all ranks of a run must have alike, by the names that people give it.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "sprat/communicator.hpp"
#include "train/config/config.hpp"
#include "train/data/tokenized_text.hpp"
#include "train/train.hpp"

namespace sprat::train {

/// Values as text, by key.
using Settings = std::map<std::string, std::string>;

/// Every key of the configuration, defaults included. Where hosts may call one thing by different
/// names, what is named takes the place of the name: of checkpoint.folder whether there is one (a
/// file system may be mounted anywhere; the first save is rehearsed in it), and of tiers their kind
/// (their folders are each host's own). data.files and data.tokenizer are text_settings()'s; what
/// data.sources hold is known when they are open.
Settings settings_of(const TrainConfig& config);
/// data.files and data.tokenizer: what they hold, wherever they lie.
Settings text_settings(const TokenizedText& text);
/// Of the command line. Not --report, which rank 0 alone looks at; of paths whether they are given,
/// since loading holds what it finds there against the other ranks.
Settings request_settings(const TrainRequest& request);

/// Collective, whatever a rank has read. `read` reads what this rank trains with and returns its
/// settings. Throws the same Error on every rank: what `read` throws on some, naming them, or
/// Error{mismatch} with the keys that differ, their values and the ranks that have each.
void agree_on_settings(Communicator& world, const std::function<Settings()>& read);

}  // namespace sprat::train
