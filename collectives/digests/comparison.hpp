// Where two runs part, or replicas of one: from files of digests, without I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/digests/kept_values.hpp"
#include "collectives/digests/streams.hpp"

namespace sprat::collectives::digests {

enum class Parting {
  other_call,  ///< A rank calls something else, or no more.
  input,       ///< What a rank puts in.
  result,      ///< What comes out, where all that is known to go in is alike.
};

/// The first place where something differs.
struct Difference {
  Parting what = Parting::result;
  int rank = 0;            ///< Of the job: where it shows. Of replicas the first that is wrong.
  std::vector<int> ranks;  ///< Those where it shows in the same call.
  std::vector<int> right;  ///< Of replicas: those that have what most have; empty if none do.
  std::string communicator;
  Call call;  ///< As the first run, or the rank, made it.
  std::string call_words;
  std::uint64_t of_step = 0;  ///< The how manieth collective of its kind and communicator, from 1.
  Range range;                ///< Of Parting::input and Parting::result.
  bool inputs_known = false;  ///< So that inputs that do not differ are alike.
  int block = -1;             ///< The communicator's rank whose block it is in; -1: no blocks.
  std::string other;          ///< What the second run calls instead; empty: nothing.
  KeptCall keep;              ///< What SPRAT_DIGESTS_KEEP shows the element of.
};

struct Comparison {
  std::optional<Difference> first;
  std::uint64_t calls = 0;         ///< That were compared.
  std::uint64_t partings = 0;      ///< Streams of calls that part; of replicas, calls that differ.
  std::vector<std::string> notes;  ///< What could not be compared, a sentence each.
  bool equal() const { return !first; }
};

/// Two jobs of as many ranks. `first` is the earliest step's; within it the call that ended first,
/// and of that an input before a result: what went in differed before what came out.
Comparison compare_runs(const JobFiles& a, const JobFiles& b);
/// Results that all ranks of a communicator must have alike, and messages against what was sent.
Comparison compare_replicas(const JobFiles& job);

/// "step 412, all_reduce 3 of the step (operation 1237 of world: all_reduce of 1024 f32, sum)".
std::string place_text(const Difference& difference);
/// "elements 65,536 to 131,071 of the result (the block of rank 1); 1 of 16 chunks differs".
std::string range_text(const Difference& difference);

}  // namespace sprat::collectives::digests
