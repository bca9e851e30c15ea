// `sprat diff`: where two runs part, or replicas of one, from the digests that they left.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "collectives/digests/run_files.hpp"
#include "comm/base/rank_list.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

namespace digests = collectives::digests;
using digests::Difference;
using digests::LoadedJob;
using digests::Parting;

struct DiffOptions {
  std::string a, b;
  bool json = false;
};

/// An element that was kept, and what it is on both sides.
struct Element {
  std::uint64_t index = 0;
  std::uint64_t number = 0;  ///< So many elements differ.
  std::string a, b;
};

/// What is to be said, to whomever.
struct Answer {
  digests::Comparison comparison;
  std::optional<Element> element;
  std::vector<std::string> sentences;  ///< The difference, in words.
};

/// Whatever cannot be read makes no sense as an argument: exit code 2.
std::vector<LoadedJob> load(const std::string& run) {
  try {
    return digests::load_run(run);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

/// What the jobs before gave, and then `next`'s.
Answer one_more(const Answer& before, Answer next) {
  digests::Comparison& comparison = next.comparison;
  comparison.calls += before.comparison.calls;
  comparison.notes.insert(comparison.notes.begin(), before.comparison.notes.begin(),
                          before.comparison.notes.end());
  return next;
}

std::string list_of_jobs(const std::vector<LoadedJob>& jobs) {
  std::string list;
  for (const LoadedJob& job : jobs) {
    list += fmt::format("{}{}/{}", list.empty() ? "" : ", ", job.folder, job.name);
  }
  return list;
}

std::optional<Element> element_of(const Difference& difference, const LoadedJob& a, int rank_a,
                                  const LoadedJob& b, int rank_b) {
  // The values lie beside the digests, if the run was asked to keep them.
  const auto side =
      difference.what == Parting::input ? digests::Side::input : digests::Side::result;
  const auto file_a = a.values(rank_a, difference.call, side);
  const auto file_b = b.values(rank_b, difference.call, side);
  const auto values_a = file_a ? digests::parse_values(file_a->bytes()) : std::nullopt;
  const auto values_b = file_b ? digests::parse_values(file_b->bytes()) : std::nullopt;
  if (!values_a || !values_b) {
    return std::nullopt;
  }
  const auto found = digests::compare(*values_a, *values_b);
  if (found.number == 0) {
    return std::nullopt;
  }
  return Element{.index = found.first,
                 .number = found.number,
                 .a = digests::element_text(*values_a, found.first),
                 .b = digests::element_text(*values_b, found.first)};
}

void say_element(Answer& answer, const std::string& again) {
  const Difference& first = *answer.comparison.first;
  if (answer.element) {
    const Element& element = *answer.element;
    answer.sentences.push_back(fmt::format("element {}: {} and {}; {} element{}", element.index,
                                           element.a, element.b, element.number,
                                           element.number == 1 ? " differs" : "s differ"));
  } else {
    answer.sentences.push_back(
        fmt::format("to see the element: {} with SPRAT_DIGESTS_KEEP=\"{}\"{}", again,
                    digests::to_text(first.keep),
                    first.what == Parting::input ? " and SPRAT_DIGESTS_INPUTS=1" : ""));
  }
}

// --- two runs ---

std::string call_or_none(const std::string& words) {
  return words.empty() ? "calls nothing more" : "calls " + words;
}

void say_runs(Answer& answer) {
  const Difference& first = *answer.comparison.first;
  const std::string ranks = comm::ranks_text(first.ranks);
  if (first.what == Parting::other_call) {
    answer.sentences.push_back(fmt::format(
        "the runs make other calls from {}, call {} of {} on: on {} A {}, and B {}",
        first.call.step < 0 ? "before the first step" : fmt::format("step {}", first.call.step),
        first.call.number, first.communicator, ranks, call_or_none(first.call_words),
        call_or_none(first.other)));
    return;
  }
  answer.sentences.push_back(fmt::format("the runs part at {}", digests::place_text(first)));
  answer.sentences.push_back(fmt::format("on {}: {}", ranks, digests::range_text(first)));
  const bool message = first.call.kind != digests::CallKind::collective;
  if (first.what == Parting::input) {
    answer.sentences.push_back(
        fmt::format("what {} {} in differs: look at what it computed before, not at the call",
                    ranks, first.ranks.size() == 1 ? "puts" : "put"));
  } else if (first.inputs_known) {
    answer.sentences.emplace_back(
        message ? "what was sent is alike: the bits changed on the way"
                : "what all ranks put in is alike: the bits changed on the way, or in the sum");
  } else {
    answer.sentences.emplace_back(
        "whose buffer differed first is not known; SPRAT_DIGESTS_INPUTS=1 in both runs tells");
  }
}

Answer compare_jobs(const LoadedJob& a, const LoadedJob& b) {
  Answer answer;
  answer.comparison = digests::compare_runs(a.files("A"), b.files("B"));
  if (answer.comparison.first) {
    const Difference& first = *answer.comparison.first;
    say_runs(answer);
    if (first.what != Parting::other_call) {
      answer.element = element_of(first, a, first.rank, b, first.rank);
      say_element(answer, "run both again");
    }
  }
  return answer;
}

/// A run of several jobs shrank: each is compared with the one that came at its turn.
Answer compare_runs(const DiffOptions& options) {
  const auto a = load(options.a), b = load(options.b);
  if (a.size() != b.size()) {
    throw UsageError(fmt::format("A has {} job{} and B {}: name one of each, of {}; {}", a.size(),
                                 a.size() == 1 ? "" : "s", b.size(), list_of_jobs(a),
                                 list_of_jobs(b)));
  }
  // The first jobs that differ are told; what follows in a run that shrank differs for that reason.
  Answer all;
  for (std::size_t at = 0; at < a.size() && all.comparison.equal(); ++at) {
    if (a[at].size != b[at].size) {
      Difference difference;
      difference.what = Parting::other_call;
      all.comparison.first = difference;
      all.sentences = {
          fmt::format("A has {} ranks and B {}: their calls cannot be compared rank by "
                      "rank",
                      a[at].size, b[at].size)};
      break;
    }
    Answer one = compare_jobs(a[at], b[at]);
    all = one_more(all, std::move(one));
  }
  for (const auto* jobs : {&a, &b}) {
    all.comparison.notes.insert(all.comparison.notes.end(), jobs->front().unreadable.begin(),
                                jobs->front().unreadable.end());
  }
  return all;
}

// --- replicas of one run ---

void say_replicas(Answer& answer) {
  const Difference& first = *answer.comparison.first;
  const std::string ranks = comm::ranks_text(first.ranks);
  if (first.call.kind != digests::CallKind::collective) {
    answer.sentences.push_back(
        fmt::format("a message came otherwise than it was sent: {}", digests::place_text(first)));
    answer.sentences.push_back(fmt::format("on {}: {}", ranks, digests::range_text(first)));
    return;
  }
  answer.sentences.push_back(
      fmt::format("ranks have different results of one call: {}", digests::place_text(first)));
  answer.sentences.push_back(
      first.right.empty()
          ? fmt::format("{} differ, and as many have the one as the other: {}", ranks,
                        digests::range_text(first))
          : fmt::format("{} {} from {}: {}", ranks, first.ranks.size() == 1 ? "differs" : "differ",
                        comm::ranks_text(first.right), digests::range_text(first)));
}

Answer compare_replicas(const DiffOptions& options) {
  const auto jobs = load(options.a);
  Answer all;
  for (const LoadedJob& job : jobs) {
    Answer one;
    one.comparison = digests::compare_replicas(job.files(job.name));
    all = one_more(all, std::move(one));
    if (all.comparison.first) {
      const Difference& first = *all.comparison.first;
      say_replicas(all);
      const int other = first.right.empty() ? first.ranks.back() : first.right.front();
      if (first.call.kind == digests::CallKind::collective) {
        all.element = element_of(first, job, first.rank, job, other);
        say_element(all, "run again");
      }
      break;
    }
  }
  all.comparison.notes.insert(all.comparison.notes.end(), jobs.front().unreadable.begin(),
                              jobs.front().unreadable.end());
  return all;
}

// --- what is printed ---

const char* name(Parting what) {
  switch (what) {
    case Parting::other_call:
      return "call";
    case Parting::input:
      return "input";
    case Parting::result:
      return "result";
  }
  return "unknown";
}

nlohmann::ordered_json difference_json(const Difference& first,
                                       const std::optional<Element>& element) {
  nlohmann::ordered_json json = {{"what", name(first.what)}, {"rank", first.rank},
                                 {"ranks", first.ranks},     {"communicator", first.communicator},
                                 {"step", first.call.step},  {"operation", first.call.number},
                                 {"call", first.call_words}};
  if (first.what == Parting::other_call) {
    json["other_call"] = first.other;
    return json;
  }
  json["of_step"] = first.of_step;
  json["first_element"] = first.range.first;
  json["last_element"] = first.range.last;
  json["chunks_differ"] = first.range.chunks;
  json["chunks"] = first.range.of;
  if (!first.right.empty()) {
    json["right"] = first.right;
  }
  if (first.block >= 0) {
    json["block"] = first.block;
  }
  if (element) {
    json["element"] = element->index;
    json["elements_differ"] = element->number;
    json["values"] = {element->a, element->b};
  }
  return json;
}

void print_answer_json(const Answer& answer) {
  const digests::Comparison& comparison = answer.comparison;
  nlohmann::ordered_json json = {
      {"equal", comparison.equal()}, {"calls", comparison.calls}, {"notes", comparison.notes}};
  if (comparison.first) {
    json["first"] = difference_json(*comparison.first, answer.element);
    json["sentences"] = answer.sentences;
  }
  fmt::print("{}\n", json.dump(2));
}

void print_answer(const Answer& answer, bool one_run) {
  const digests::Comparison& comparison = answer.comparison;
  for (const std::string& sentence : answer.sentences) {
    fmt::print("{}\n", sentence);
  }
  if (comparison.equal()) {
    fmt::print("{}: {} calls compared\n",
               one_run ? "all ranks have alike what must be alike" : "no difference",
               comparison.calls);
  }
  for (const std::string& note : comparison.notes) {
    fmt::print("note: {}\n", note);
  }
}

int run_diff(const DiffOptions& options) {
  const bool one_run = options.b.empty();
  const Answer answer = one_run ? compare_replicas(options) : compare_runs(options);
  if (options.json) {
    print_answer_json(answer);
  } else {
    print_answer(answer, one_run);
  }
  return answer.comparison.equal() ? 0 : 1;
}

Action prepare_diff(CLI::App& app) {
  auto options = std::make_shared<DiffOptions>();
  app.add_option("A", options->a, "Folder of digests, or FOLDER/JOB where it holds several")
      ->required();
  app.add_option("B", options->b, "The other run; none: ranks of A are compared with each other");
  app.add_flag("--json", options->json, "One JSON object");
  return [options] { return run_diff(*options); };
}

}  // namespace

extern const Command diff_command;
const Command diff_command = {
    "diff",
    "Find the first call at which two runs part, or ranks that must agree",
    R"(SPRAT_DIGESTS=FOLDER lets each rank keep a number for each 64 KiB of what each call gave.
Of two such folders this says the first step, call, rank and elements that differ; of one, which rank
has something else than the others where all must have the same. Exit code 0: alike, 1: they differ,
2: there is nothing to compare.

Examples:
  SPRAT_DIGESTS=a mpirun -np 4 sprat train small.json   keep digests of a run,
  SPRAT_DIGESTS=b mpirun -np 4 sprat train small.json   and of another
  sprat diff a b                                        where do they part?
  sprat diff a                                          do replicas have the same?
  SPRAT_DIGESTS_INPUTS=1                                also whose buffer differed first
  SPRAT_DIGESTS_KEEP="world 412"                        keep the values of operation 412 of world
  SPRAT_DIGESTS_CHECK=100                               compare replicas every 100 steps, and stop
)",
    prepare_diff,
};

}  // namespace sprat::cli
