// Proves plans by running them on symbols: complete, free of deadlock and races, and canonical.
//
// All steps run once, in any order that their dependencies allow. That one run proves all others:
// it shows what values there are if no two steps race, and every access is compared with all others
// to the same elements, by what certainly happened before what (happens_before.hpp), to show that
// none do.
#include "collectives/verify/verifier.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "collectives/verify/expected_output.hpp"
#include "collectives/verify/happens_before.hpp"
#include "collectives/verify/symbols.hpp"
#include "collectives/verify/well_formed.hpp"
#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

// The first few say what is wrong; a plan of many ranks would repeat it for each.
constexpr std::size_t most_violations = 20;

/// Elements of a rank's memory once aliases are resolved.
struct Place {
  int rank = 0;
  Buffer memory = Buffer::input;
  std::size_t begin = 0, count = 0;
  bool operator==(const Place&) const = default;
};

bool overlap(const Place& a, const Place& b) {
  return a.rank == b.rank && a.memory == b.memory && a.begin < b.begin + b.count &&
         b.begin < a.begin + a.count;
}

struct RecordedAccess {
  std::size_t step = 0;
  Place place;
  bool writes = false;
};

/// What peers read of a range that is shared from private memory.
struct Shared {
  std::size_t step = 0;
  Operand range;
  Value value;
  bool snapshot = false;
};

/// One rank's memory, by Buffer, with all that was done to it.
struct RankMemory {
  std::array<SymbolMemory, buffer_kinds> contents;
  std::array<std::vector<RecordedAccess>, buffer_kinds> accesses;
  std::vector<Shared> shared;
};

class Verification {
 public:
  Verification(const std::vector<Problem>& problems, const std::vector<Plan>& plans, bool in_place);
  std::vector<std::string> run();

 private:
  void run_steps();
  void execute(std::size_t step);
  void share(std::size_t step);
  void copy(std::size_t step);
  void reduce(std::size_t step);
  void exchange(std::size_t sender, std::size_t receiver);
  void check_term(std::size_t step, const Source& term, const Value& value);
  Value tree(RankRange range, std::span<const Source> terms, std::span<const Value> values,
             std::size_t& next);

  Place place_of(const Operand& operand) const;
  SymbolMemory& contents_of(const Place& place);
  void record(const RecordedAccess& access);
  Value read(std::size_t step, const Operand& operand);
  Value read_shared(std::size_t step, const Operand& operand);
  void write(std::size_t step, const Operand& to, const Value& value);
  void check_contributions(std::size_t step, const Value& value);

  void check_ends();
  void check_outputs(int rank);
  void check_barrier();

  template <class... Args>
  void report(std::size_t step, const Args&... args) {
    violations_.push_back(text(time_.label(step), " ", args...));
  }

  const std::vector<Problem>& problems_;  ///< By rank.
  const Problem& p_;                      ///< For what all ranks know.
  const std::vector<Plan>& plans_;
  bool in_place_;
  HappensBefore time_;
  Symbols symbols_;
  std::vector<RankMemory> memory_;
  std::vector<std::string> violations_;
};

Verification::Verification(const std::vector<Problem>& problems, const std::vector<Plan>& plans,
                           bool in_place)
    : problems_(problems),
      p_(problems.front()),
      plans_(plans),
      in_place_(p_.collective == Collective::broadcast || in_place),
      time_(p_, plans),
      memory_(plans.size()) {
  for (int rank = 0; rank < p_.ranks(); ++rank) {
    // Of a broadcast only the root's data mean anything, though every rank has a buffer.
    const bool has_input = p_.collective != Collective::broadcast || rank == p_.root;
    Value input;
    for (int block = 0; block < blocks_of(p_, Buffer::input, rank); ++block) {
      const Expression own = has_input ? symbols_.contribution(rank, block) : undefined;
      const std::size_t count = count_of(problems[rank], Buffer::input, rank, block);
      input.push_back({.count = count, .expression = own});
    }
    const std::size_t outputs = elements_of(problems[rank], Buffer::output, rank);
    memory_[rank].contents = {SymbolMemory(input), SymbolMemory::unwritten(outputs),
                              SymbolMemory::unwritten(plans[rank].scratch_count),
                              SymbolMemory::unwritten(plans[rank].contributions_count)};
    if (input.size() == 1) {  // in place, it may lie in the output
      const Place own = place_of(input_of(problems[rank], rank));
      contents_of(own).write(own.begin, input);
    }
  }
}

std::vector<std::string> Verification::run() {
  for (std::size_t step : time_.repeats()) {
    report(step, "repeats a message");
  }
  run_steps();
  check_ends();
  if (violations_.size() > most_violations) {
    violations_.resize(most_violations);
  }
  return std::move(violations_);
}

// A send moves only together with its receive, as if no wire could hold a message: so whatever ends
// here ends on every transport. Nothing moves any more if all is done, or if plans wait for each
// other, which check_ends() tells.
void Verification::run_steps() {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t step = 0; step < time_.steps(); ++step) {
      if (time_.done(step) || !time_.ready(step)) {
        continue;
      }
      const Verb verb = time_.step(step).verb;
      if (verb == Verb::recv) {
        continue;  // moves with its send
      }
      if (verb == Verb::send) {
        const std::size_t receiver = time_.partner(step);
        if (receiver == HappensBefore::nowhere || !time_.ready(receiver)) {
          continue;
        }
        exchange(step, receiver);
      } else {
        execute(step);
      }
      moved = true;
    }
  }
}

// Peers count signals. If two could come in either order, nobody could tell which one was meant.
void Verification::execute(std::size_t step) {
  const std::size_t last_signal = time_.last_signal(time_.rank_of(step));
  time_.complete(step);
  switch (time_.step(step).verb) {
    case Verb::share:
      return share(step);
    case Verb::signal:
      if (last_signal != HappensBefore::nowhere && !time_.before(last_signal, step)) {
        report(step, "is not ordered with ", time_.label(last_signal));
      }
      return;
    case Verb::copy:
      return copy(step);
    case Verb::reduce:
      return reduce(step);
    case Verb::wait:
    case Verb::send:
    case Verb::recv:
      return;
  }
}

// Private memory is copied when it is shared, and peers see that copy: so it is read now.
void Verification::share(std::size_t step) {
  const Step& what = time_.step(step);
  std::vector<Shared>& shared = memory_[time_.rank_of(step)].shared;
  for (const Shared& other : shared) {
    const bool same_buffer = other.range.buffer == what.from.buffer;
    if (same_buffer && overlap(place_of(what.from), place_of(other.range))) {
      report(step, "shares again what ", time_.label(other.step), " has shared");
    }
  }
  shared.push_back({step, what.from, read(step, what.from), what.snapshot});
}

void Verification::copy(std::size_t step) {
  const Step& what = time_.step(step);
  const Place from = place_of(what.from), to = place_of(what.to);
  // The same place is nothing to do; partly the same depends on which end one begins with.
  if (from != to && overlap(from, to)) {
    report(step, "copies onto itself, shifted");
  }
  const Value value = read(step, what.from);
  if (from != to) {
    write(step, what.to, value);  // in place there is nothing to move
  }
}

void Verification::reduce(std::size_t step) {
  const Step& what = time_.step(step);
  const Plan& plan = plans_[time_.rank_of(step)];
  const std::span terms(plan.sources.data() + what.sources.first,
                        what.sources.last - what.sources.first);
  const Place to = place_of(what.to);
  std::vector<Value> values;
  for (const Source& term : terms) {
    const Place from = place_of(term.from);
    if (from != to && overlap(from, to)) {
      report(step, "reduces onto part of a term");
    }
    values.push_back(read(step, term.from));
    // In canonical order the tree itself shows whether a term is what it says.
    if (plan.order == ReduceOrder::any) {
      check_term(step, term, values.back());
    }
  }
  std::size_t next = 0;
  const RankRange joint{terms.front().covers.first, terms.back().covers.last};
  const Value sum = tree(joint, terms, values, next);
  write(step, what.to, what.to.buffer == Buffer::output ? finished(symbols_, sum) : sum);
}

/// How many ranks a term says it holds decides how it enters the sum: see Term.
void Verification::check_term(std::size_t step, const Source& term, const Value& value) {
  for (const Segment& segment : value) {
    const std::size_t ranks = symbols_.terms(segment.expression).size();
    if (ranks == static_cast<std::size_t>(term.covers.size())) {
      continue;
    }
    report(step, "takes ", symbols_.text(segment.expression), " for the partial of ",
           term.covers.size(), " ranks");
  }
}

/// As an executor reduces: a node is a term if one covers exactly that, else of its halves.
Value Verification::tree(RankRange range, std::span<const Source> terms,
                         std::span<const Value> values, std::size_t& next) {
  if (terms[next].covers == range) {
    return values[next++];
  }
  const int middle = split_point(range, terms[next].covers);
  const Value left = tree({range.first, middle}, terms, values, next);
  return combined(symbols_, left, tree({middle, range.last}, terms, values, next));
}

void Verification::exchange(std::size_t sender, std::size_t receiver) {
  time_.complete_message(sender, receiver);
  const Operand& from = time_.step(sender).from;
  const Operand& to = time_.step(receiver).to;
  const Value value = read(sender, from);
  const DType sent = element_type(p_, from.buffer), due = element_type(p_, to.buffer);
  // Types are compared, not bytes: two f16 are as long as one f32, and wrong.
  if (sent != due || from.count != to.count) {
    report(receiver, "expects ", to.count, " ", name(due), " where ", time_.label(sender),
           " sends ", from.count, " ", name(sent));
    return;
  }
  write(receiver, to, value);
}

Place Verification::place_of(const Operand& operand) const {
  Place place{.rank = operand.rank,
              .memory = operand.buffer,
              .begin = operand.offset,
              .count = operand.count};
  if (is_own(operand.buffer)) {
    return place;
  }
  const Problem& problem = problems_[operand.rank];
  place.begin += offset_of(problem, operand.buffer, operand.block);
  const int inputs = blocks_of(problem, Buffer::input, operand.rank);
  const int outputs = blocks_of(problem, Buffer::output, operand.rank);
  if (!in_place_ || inputs == 0 || outputs == 0) {
    return place;
  }
  // The smaller of the two buffers is one block, its rank's, of the larger.
  const Buffer whole = outputs > inputs ? Buffer::output : Buffer::input;
  if (operand.buffer != whole && std::max(inputs, outputs) > 1) {
    place.begin += offset_of(problem, whole, operand.rank);
  }
  place.memory = whole;
  return place;
}

SymbolMemory& Verification::contents_of(const Place& place) {
  return memory_[place.rank].contents[static_cast<std::size_t>(place.memory)];
}

void Verification::record(const RecordedAccess& access) {
  const Place& place = access.place;
  if (place.count == 0) {
    return;
  }
  auto& accesses = memory_[place.rank].accesses[static_cast<std::size_t>(place.memory)];
  for (const RecordedAccess& other : accesses) {
    // Steps run here one after the other. So the other one came first in this run, and must have in
    // every other.
    const bool conflicts = (access.writes || other.writes) && other.step != access.step;
    if (conflicts && overlap(place, other.place) && !time_.before(other.step, access.step)) {
      report(access.step, access.writes ? "writes" : "reads", " what ", time_.label(other.step),
             other.writes ? " writes" : " reads", " at the same time");
    }
  }
  accesses.push_back(access);
}

Value Verification::read(std::size_t step, const Operand& operand) {
  const Place place = place_of(operand);
  const bool own = operand.rank == time_.rank_of(step);
  Value value;
  if (own || is_own(operand.buffer)) {
    record({.step = step, .place = place, .writes = false});
    value = contents_of(place).read(place.begin, place.count);
  } else {
    value = read_shared(step, operand);
  }
  for (const Segment& segment : value) {
    if (segment.expression == undefined) {
      report(step, "reads what nobody has written");
    }
  }
  return value;
}

// Two ways to read a peer's memory must give the same: a copy made when it was shared, and the
// memory itself. The value is the copy's; whoever writes in between, so that live memory would
// differ, is reported. A snapshot is a copy everywhere.
Value Verification::read_shared(std::size_t step, const Operand& operand) {
  SymbolMemory seen = SymbolMemory::unwritten(operand.count);
  std::size_t missing = operand.count;
  for (const Shared& shared : memory_[operand.rank].shared) {
    const Operand& range = shared.range;
    if (range.buffer != operand.buffer || range.block != operand.block) {
      continue;
    }
    const std::size_t first = std::max(range.offset, operand.offset);
    const std::size_t last = std::min(range.offset + range.count, operand.offset + operand.count);
    if (first >= last || !time_.before(shared.step, step)) {
      continue;
    }
    const SymbolMemory copied(shared.value);
    seen.write(first - operand.offset, copied.read(first - range.offset, last - first));
    missing -= last - first;
    if (shared.snapshot) {
      continue;
    }
    const Place live =
        place_of(piece_of(operand, {.offset = first - operand.offset, .count = last - first}));
    record({.step = step, .place = live, .writes = false});
    for (const RecordedAccess& write :
         memory_[live.rank].accesses[static_cast<std::size_t>(live.memory)]) {
      const bool between = write.writes && overlap(write.place, live) &&
                           time_.before(write.step, step) && !time_.before(write.step, shared.step);
      if (between) {
        report(step, "reads what ", time_.label(write.step), " writes after its share");
      }
    }
  }
  if (missing > 0) {
    report(step, "reads what rank ", operand.rank, " has not shared before");
  }
  return seen.read(0, operand.count);
}

void Verification::write(std::size_t step, const Operand& to, const Value& value) {
  const Place place = place_of(to);
  record({.step = step, .place = place, .writes = true});
  if (to.buffer == Buffer::contributions) {
    check_contributions(step, value);
  }
  contents_of(place).write(place.begin, value);
}

/// What lies there enters a reduction as one rank's own, in the input's type.
void Verification::check_contributions(std::size_t step, const Value& value) {
  for (const Segment& segment : value) {
    if (symbols_.terms(segment.expression).size() != 1) {
      report(step, "keeps ", symbols_.text(segment.expression), " as one rank's contribution");
    }
  }
}

void Verification::check_ends() {
  bool all_done = true;
  for (std::size_t step = 0; step < time_.steps(); ++step) {
    if (time_.done(step)) {
      continue;
    }
    all_done = false;
    report(step, "never runs");
  }
  if (!all_done) {
    return;
  }
  if (p_.collective == Collective::barrier) {
    return check_barrier();
  }
  for (int rank = 0; rank < p_.ranks(); ++rank) {
    check_outputs(rank);
  }
}

// A segment also says from which position its elements come: it must be the one where they lie.
void Verification::check_outputs(int rank) {
  for (int block = 0; block < blocks_of(p_, Buffer::output, rank); ++block) {
    const Place place = place_of(output_of(problems_[rank], rank, block));
    const Expression wanted = result_of(symbols_, p_, rank, block);
    const bool any_order = plans_[rank].order == ReduceOrder::any;
    const auto is_right = [&](Expression found) {
      return found == wanted ||
             (any_order && symbols_.unordered(found) == symbols_.unordered(wanted));
    };
    std::size_t offset = 0;
    for (const Segment& segment : contents_of(place).read(place.begin, place.count)) {
      if (!is_right(segment.expression) || segment.origin != offset) {
        violations_.push_back(text("rank ", rank, " ends with ", symbols_.text(segment.expression),
                                   " of ", segment.origin, " at ", offset, " in block ", block,
                                   " for ", segment.count, " elements, not ",
                                   symbols_.text(wanted)));
      }
      offset += segment.count;
    }
  }
}

// A barrier moves nothing; what it promises is that all have begun before any ends.
void Verification::check_barrier() {
  for (int rank = 0; rank < p_.ranks(); ++rank) {
    for (int other = 0; other < p_.ranks(); ++other) {
      if (time_.begins_before_end(other, rank)) {
        continue;
      }
      violations_.push_back(text("rank ", rank, " leaves before rank ", other, " has come"));
    }
  }
}

}  // namespace

std::vector<std::string> verify(const std::vector<Problem>& problems,
                                const std::vector<Plan>& plans, bool in_place) {
  const Problem& problem = problems.front();
  require(static_cast<int>(plans.size()) == problem.ranks(), "verify needs a plan for each of ",
          problem.ranks(), " ranks, not ", plans.size());
  const bool can_alias = problem.input == problem.output &&
                         problem.collective != Collective::all_to_all &&
                         problem.collective != Collective::all_to_allv;
  require(!in_place || can_alias, "plans of ", name(problem.collective), " from ",
          name(problem.input), " to ", name(problem.output), " never run in place");
  // Steps that name what there is not cannot be run.
  std::vector<std::string> malformed = malformed_steps(problems, plans);
  if (!malformed.empty()) {
    return malformed;
  }
  return Verification(problems, plans, in_place).run();
}

std::vector<std::string> verify(const Problem& problem, const std::vector<Plan>& plans,
                                bool in_place) {
  return verify(for_each_rank(problem), plans, in_place);
}

}  // namespace sprat::collectives
