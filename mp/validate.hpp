// Whether a schedule can run and computes what a step needs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mp/schedule.hpp"

namespace sprat::mp {

/// What is wrong, a sentence each with rank, place (from 0) and action; empty: the schedule is
/// valid. These rules are held:
/// - actions are of the schedule's stages and micro-batches, on the stage's rank;
/// - each stage has each micro-batch forward and backward once (a backward, or its two halves), or
///   all have it forward alone;
/// - on a rank, forward comes before backward, an input's gradient before the weights', a send
///   behind what makes it, a receive before what needs it;
/// - with messages, each has one send and one receive, and between two ranks, in each direction,
///   receives are in the order of the sends;
/// - with gathers, what computes has its parameters, and they are gathered and dropped in turns;
/// - gradients are reduced behind their last contribution, those of all stages or of none;
/// - a tape is stored behind its forward, loaded behind its store, and there for its backward;
///   a forward is computed again before its backward;
/// - every rank reaches its end. Looked at where all else holds.
std::vector<std::string> violations(const Schedule& schedule);

/// The least number of messages, between each pair of ranks in each direction, that a send must be
/// able to leave behind without waiting for its receive, or else ranks wait for each other for
/// ever; 0: every send may wait. For a schedule whose messages are as violations() wants them;
/// without messages it is 0. Nothing if no number is enough.
std::optional<int> least_message_capacity(const Schedule& schedule);

/// The most micro-batches that a rank holds at once between their forward and their last backward,
/// one for each of its stages.
std::vector<int> peak_microbatches(const Schedule& schedule);

}  // namespace sprat::mp
