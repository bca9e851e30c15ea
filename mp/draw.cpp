#include "mp/draw.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/check.hpp"

namespace sprat::mp {
namespace {

struct Letter {
  Op op{};
  char letter = 0;
  std::string_view meaning;
};

// In the order of the explanation.
constexpr std::array letters = {
    Letter{Op::forward, 'F', "forward"},
    Letter{Op::backward, 'B', "backward"},
    Letter{Op::backward_input, 'I', "gradient of the input"},
    Letter{Op::backward_weight, 'W', "gradients of the weights"},
    Letter{Op::recompute, 'R', "forward once more"},
    Letter{Op::overlap, 'O', "a forward beside a backward"},
};

/// Null: no computation.
const Letter* letter_of(Op op) {
  const auto found = std::ranges::find(letters, op, &Letter::op);
  return found == letters.end() ? nullptr : &*found;
}

/// Neighbouring stages of a rank differ, in capitals and small letters.
std::string label_of(const Action& action, const std::vector<int>& chunks) {
  const bool small = chunks[std::size_t(action.stage)] % 2 == 1;
  const char letter = letter_of(action.op)->letter;
  const std::string beside = action.op == Op::overlap ? text("+", action.other_microbatch) : "";
  return text(std::string(1, small ? char(letter - 'A' + 'a') : letter), action.microbatch, beside);
}

/// Of a label that has no room only the letter is left, all over the span.
std::string span_text(const std::string& label, std::size_t width) {
  if (width < label.size()) {
    return std::string(width, label.front());
  }
  std::string out = label + std::string(width - label.size(), '-');
  if (width > label.size()) {
    out.back() = ' ';
  }
  return out;
}

/// Columns of a second: such that the shortest span has room for the longest label and a blank,
/// else a whole number of columns, else what fits.
double scale_for(const Schedule& schedule, const Timeline& made, const std::vector<int>& chunks,
                 double room) {
  double shortest = made.makespan;
  std::size_t widest = 0;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const Action& action = schedule.actions[rank][i];
      const double seconds = made.spans[rank][i].end - made.spans[rank][i].start;
      if (letter_of(action.op) != nullptr && seconds > 0) {
        shortest = std::min(shortest, seconds);
        widest = std::max(widest, label_of(action, chunks).size() + 1);
      }
    }
  }
  if (shortest <= 0) {
    return 0;
  }
  const double fitting = std::min(double(widest), room / made.makespan * shortest);
  return (fitting < 1 ? fitting : std::floor(fitting)) / shortest;
}

std::string explanation(const Schedule& schedule, const std::vector<int>& chunks) {
  std::string out;
  for (const Letter& letter : letters) {
    bool occurs = false;
    for (const auto& actions : schedule.actions) {
      occurs = occurs || std::ranges::find(actions, letter.op, &Action::op) != actions.end();
    }
    if (occurs) {
      out += text(out.empty() ? "" : ", ", std::string(1, letter.letter), " ", letter.meaning);
    }
  }
  const bool small = std::ranges::any_of(chunks, [](int chunk) { return chunk % 2 == 1; });
  return out + (small ? "; small letters: every second stage of a rank" : "") + "\n";
}

}  // namespace

std::vector<int> chunks_of(const Schedule& schedule) {
  std::vector<int> chunks, of_rank(std::size_t(schedule.ranks()));
  for (const int rank : schedule.rank_of_stage) {
    chunks.push_back(of_rank[std::size_t(rank)]++);
  }
  return chunks;
}

std::string draw(const Schedule& schedule, const Timeline& made, int columns) {
  const std::size_t head = text("rank ", schedule.ranks() - 1, " ").size();
  const double room = std::max(double(columns) - double(head), 1.0);
  const std::vector<int> chunks = chunks_of(schedule);
  const double scale = scale_for(schedule, made, chunks, room);
  const auto column_of = [&](double time) { return std::size_t(std::lround(time * scale)); };
  std::string out;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    std::string line(column_of(made.makespan), '.');
    for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const Action& action = schedule.actions[rank][i];
      if (letter_of(action.op) != nullptr) {
        const std::size_t from = column_of(made.spans[rank][i].start);
        const std::size_t width = column_of(made.spans[rank][i].end) - from;
        line.replace(from, width, span_text(label_of(action, chunks), width));
      }
    }
    std::string name = text("rank ", rank, " ");
    name.insert(5, head - name.size(), ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    out += name + line + "\n";
  }
  return out + explanation(schedule, chunks);
}

}  // namespace sprat::mp
