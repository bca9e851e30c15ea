#include "mp/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string>
#include <vector>

#include "comm/base/check.hpp"
#include "mp/actions.hpp"

namespace sprat::mp {
namespace {

/// In the order of Op.
constexpr std::array<std::string_view, 15> op_words = {
    "F",      "B",       "I",       "W",           "RECOMPUTE", "SEND_F", "RECV_F",     "SEND_B",
    "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD", "STORE",     "LOAD",   "OVERLAP_F_B"};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t first = text.find_first_not_of(blanks);
  return first == text.npos ? std::string_view{}
                            : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// Where a cell is, for complaints; both count from 1, as editors do.
struct Place {
  std::size_t row = 0, column = 0;
};

/// What strangers wrote may be long and may be no text at all; complaints show its beginning.
std::string shown(std::string_view cell) {
  constexpr std::size_t most = 40;
  std::string result(cell.substr(0, most));
  std::ranges::replace_if(
      result, [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return cell.size() > most ? result + "..." : result;
}

[[noreturn]] void refuse(const Place& place, std::string_view cell, std::string_view why) {
  throw Error(ErrorCode::invalid_argument,
              text("row ", place.row, ", column ", place.column, ": \"", shown(cell), "\" ", why));
}

/// Takes the digits that `rest` begins with; -1: there are none.
int take_number(std::string_view& rest, const Place& place, std::string_view cell) {
  int number = no_microbatch;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  const bool digits = !rest.empty() && rest.front() >= '0' && rest.front() <= '9';
  if (digits && error != std::errc{}) {
    refuse(place, cell, "has a number that no stage or micro-batch has");
  }
  if (!digits) {
    return no_microbatch;
  }
  rest.remove_prefix(std::size_t(end - rest.data()));
  return number;
}

/// Stage, word, micro-batch.
Action read_simple(std::string_view part, const Place& place, std::string_view cell) {
  std::string_view rest = part;
  const int stage = take_number(rest, place, cell);
  const std::string_view word = rest.substr(0, rest.find_first_of("0123456789"));
  rest.remove_prefix(word.size());
  const int microbatch = take_number(rest, place, cell);
  const auto found = std::ranges::find(op_words, word);
  if (stage < 0 || !rest.empty() || found == op_words.end() || word == op_words.back()) {
    refuse(place, cell,
           "is no action; one is a stage, a word and a micro-batch, like 2F0, 1SEND_F3 or "
           "0UNSHARD (of no micro-batch)");
  }
  const Op op = Op(found - op_words.begin());
  if (is_of_stage_alone(op) != (microbatch == no_microbatch)) {
    refuse(place, cell,
           is_of_stage_alone(op) ? "is of a stage alone and has no micro-batch"
                                 : "lacks its micro-batch");
  }
  return {.op = op, .stage = stage, .microbatch = microbatch};
}

Action read_action(std::string_view cell, const Place& place) {
  if (cell.front() != '(') {
    return read_simple(cell, place, cell);
  }
  const std::size_t middle = cell.find(';'), end = cell.find(')');
  if (end == cell.npos || middle > end || cell.substr(end + 1) != op_words.back()) {
    refuse(place, cell, "is no overlap; one is like (0F4;3B1)OVERLAP_F_B");
  }
  const Action forward = read_simple(trimmed(cell.substr(1, middle - 1)), place, cell);
  const Action backward =
      read_simple(trimmed(cell.substr(middle + 1, end - middle - 1)), place, cell);
  if (forward.op != Op::forward || backward.op != Op::backward) {
    refuse(place, cell, "overlaps something else than an F and a B, in this order");
  }
  return {.op = Op::overlap,
          .stage = forward.stage,
          .microbatch = forward.microbatch,
          .other_stage = backward.stage,
          .other_microbatch = backward.microbatch};
}

/// Actions with where they stood, by rank.
struct Cells {
  std::vector<std::vector<Action>> actions;
  std::vector<std::vector<Place>> places;
  std::size_t count = 0;
};

Cells read_cells(std::string_view text, char separator) {
  Cells cells;
  while (!text.empty()) {
    const std::size_t line_end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, line_end));
    text.remove_prefix(std::min(line_end + 1, text.size()));
    cells.actions.emplace_back();
    cells.places.emplace_back();
    for (Place place{.row = cells.actions.size(), .column = 1}; !line.empty(); ++place.column) {
      const std::size_t end = std::min(line.find(separator), line.size());
      const std::string_view cell = trimmed(line.substr(0, end));
      line.remove_prefix(std::min(end + 1, line.size()));
      if (!cell.empty()) {
        cells.actions.back().push_back(read_action(cell, place));
        cells.places.back().push_back(place);
        ++cells.count;
      }
    }
  }
  while (!cells.actions.empty() && cells.actions.back().empty()) {
    cells.actions.pop_back();
  }
  require(!cells.actions.empty(), "a schedule has a row of actions for each rank; this has none");
  return cells;
}

/// Puts a stage where its action stands.
void place_stage(Schedule& schedule, const Cells& cells, std::size_t rank, std::size_t index) {
  const Place& place = cells.places[rank][index];
  for (const Action& part : parts_of(cells.actions[rank][index])) {
    // Every stage and micro-batch has actions of its own, so none has a number above their count:
    // a huge one is refused before memory is taken for all below it.
    if (std::size_t(part.stage) >= cells.count ||
        (part.microbatch != no_microbatch && std::size_t(part.microbatch) >= cells.count)) {
      refuse(place, to_text(part),
             text("has a number above the count of actions, ", cells.count,
                  "; stages and micro-batches are numbered from 0, and each has its actions"));
    }
    auto& ranks = schedule.rank_of_stage;
    ranks.resize(std::max(ranks.size(), std::size_t(part.stage) + 1), -1);
    int& of_stage = ranks[std::size_t(part.stage)];
    if (of_stage >= 0 && of_stage != int(rank)) {
      refuse(
          place, to_text(part),
          text("is of a stage that row ", of_stage + 1, " has, too; all of a stage is in one row"));
    }
    of_stage = int(rank);
    schedule.microbatches = std::max(schedule.microbatches, part.microbatch + 1);
  }
}

Schedule read_schedule(std::string_view text, std::string_view name, char separator) {
  Cells cells = read_cells(text, separator);
  Schedule schedule{
      .name = std::string(name), .microbatches = 0, .rank_of_stage = {}, .actions = {}};
  for (std::size_t rank = 0; rank < cells.actions.size(); ++rank) {
    require(!cells.actions[rank].empty(), "row ", rank + 1,
            ", column 1: a rank without actions; each row before the last needs some");
    for (std::size_t index = 0; index < cells.actions[rank].size(); ++index) {
      place_stage(schedule, cells, rank, index);
    }
  }
  const auto hole = std::ranges::find(schedule.rank_of_stage, -1);
  require(hole == schedule.rank_of_stage.end(), "no row has an action of stage ",
          hole - schedule.rank_of_stage.begin(), "; there are stages up to ",
          schedule.stages() - 1);
  schedule.actions = std::move(cells.actions);
  return schedule;
}

std::string written(const Schedule& schedule, std::string_view separator, std::string_view end) {
  std::string result;
  for (const auto& actions : schedule.actions) {
    std::string_view before;
    for (const Action& action : actions) {
      result.append(before).append(to_text(action));
      before = separator;
    }
    result += end;
  }
  return result;
}

}  // namespace

std::string to_text(const Action& action) {
  const std::string_view word = op_words[std::size_t(action.op)];
  if (action.op == Op::overlap) {
    const ActionParts parts = parts_of(action);
    return text("(", to_text(parts.parts[0]), ";", to_text(parts.parts[1]), ")", word);
  }
  return text(action.stage, word,
              action.microbatch == no_microbatch ? "" : std::to_string(action.microbatch));
}

std::string to_text(const Schedule& schedule) { return written(schedule, " ", "\n"); }

// Python's csv ends its rows so, and takes a bare newline as well.
std::string to_csv(const Schedule& schedule) { return written(schedule, ",", "\r\n"); }

Schedule schedule_of_text(std::string_view text, std::string_view name) {
  return read_schedule(text, name, ' ');
}

Schedule schedule_of_csv(std::string_view text, std::string_view name) {
  return read_schedule(text, name, ',');
}

}  // namespace sprat::mp
