// Draws the slices of a trace as an SVG.
#include "cli/trace/picture.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/svg.hpp"
#include "planning/trace_summary.hpp"
#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

using planning::TraceSlice;

/// Where a slice stands within its rank's row, in pixels.
struct TraceLane {
  double y = 0, height = 0;
};
constexpr TraceLane processor{2, 20}, network{25, 9}, storage{37, 6};

struct TraceInk {
  const char* name;
  const char* color;
  TraceLane lane;
};
// In the order in which they are painted: what stands still amid what is computed lies over it.
constexpr std::array trace_inks = {
    TraceInk{"forward", "#264f8c", processor},
    TraceInk{"backward", "#1f7a5c", processor},
    TraceInk{"recomputation", "#6b5b95", processor},
    TraceInk{"other computing", "#4a86cf", processor},
    TraceInk{"wait", "#d5dbe1", processor},
    TraceInk{"stall", "#d62828", processor},
    TraceInk{"collective", "#9aa5b1", network},
    TraceInk{"message", "#7fb2e5", network},
    TraceInk{"gather", "#c9a227", network},
    TraceInk{"reduction", "#e76f51", network},
    TraceInk{"tier", "#b08968", storage},
    TraceInk{"loader", "#6a994e", storage},
    TraceInk{"checkpoint", "#8e3b76", storage},
};
constexpr std::size_t nothing = trace_inks.size();

std::size_t ink_named(std::string_view name) {
  const auto found = std::ranges::find(trace_inks, name, &TraceInk::name);
  return static_cast<std::size_t>(found - trace_inks.begin());
}

/// What a word of a trace is drawn as.
struct InkRow {
  std::string_view word;
  const char* ink;
};

const InkRow* ink_row_of(std::span<const InkRow> rows, std::string_view word) {
  const auto found = std::ranges::find(rows, word, &InkRow::word);
  return found == rows.end() ? nullptr : &*found;
}

/// What is computed has no kinds beside its name: "3F7", "0B1", "2RECOMPUTE0" of a schedule, or
/// whatever a program calls it.
std::size_t computing_ink(std::string_view name) {
  const std::size_t at = name.find_first_not_of("0123456789");  // behind the stage
  const std::string_view action = at == name.npos ? std::string_view() : name.substr(at);
  const std::string_view word = action.substr(0, action.find_first_of("0123456789"));
  if (word.starts_with("RECV")) {
    return ink_named("wait");  // it holds the rank until another one has sent
  }
  // A backward may be in halves: I for inputs, W for weights.
  constexpr std::array rows = {InkRow{"F", "forward"},
                               InkRow{"forward", "forward"},
                               InkRow{"B", "backward"},
                               InkRow{"I", "backward"},
                               InkRow{"W", "backward"},
                               InkRow{"backward", "backward"},
                               InkRow{"RECOMPUTE", "recomputation"}};
  const InkRow* row = ink_row_of(rows, word);
  return ink_named(row == nullptr ? "other computing" : row->ink);
}

/// `nothing` for steps, which are frames around all else.
std::size_t ink_of_slice(const TraceSlice& slice) {
  constexpr std::array rows = {InkRow{"waits", "wait"},
                               InkRow{"stalls", "stall"},
                               InkRow{"messages", "message"},
                               InkRow{"travels", "message"},
                               InkRow{"gathers", "gather"},
                               InkRow{"reduces", "reduction"},
                               InkRow{"collectives", "collective"},
                               InkRow{"tier", "tier"},
                               InkRow{"loader", "loader"},
                               InkRow{"checkpoint", "checkpoint"}};
  if (slice.kind == "steps") {
    return nothing;
  }
  const InkRow* row = ink_row_of(rows, slice.kind);
  return row == nullptr ? computing_ink(slice.name) : ink_named(row->ink);
}

struct TraceWindow {
  double begin = std::numeric_limits<double>::infinity(), end = -begin;

  void hold(const TraceSlice& slice) {
    begin = std::min(begin, slice.begin);
    end = std::max(end, slice.end);
  }
};

/// Of a step the time from its first rank's begin to its last one's end.
TraceWindow window_of(const std::vector<TraceSlice>& slices, std::optional<int> step) {
  TraceWindow window;
  for (const TraceSlice& slice : slices) {
    if (!step || (slice.kind == "steps" && slice.name == fmt::format("step {}", *step))) {
      window.hold(slice);
    }
  }
  if (window.begin < window.end) {
    return window;
  }
  throw Error(ErrorCode::invalid_argument,
              step ? fmt::format("the trace has no step {}; `sprat trace check` says what it has, "
                                 "and old steps go first where a rank's events have no room",
                                 *step)
                   : std::string("the trace has nothing that takes time"));
}

/// What is within the window, from its begin.
std::vector<TraceSlice> clipped(const std::vector<TraceSlice>& slices, const TraceWindow& window) {
  std::vector<TraceSlice> inside;
  for (TraceSlice slice : slices) {
    if (slice.end <= window.begin || slice.begin >= window.end) {
      continue;
    }
    slice.begin = std::max(slice.begin, window.begin) - window.begin;
    slice.end = std::min(slice.end, window.end) - window.begin;
    slice.sent -= slice.sent < 0 ? 0 : window.begin;
    inside.push_back(std::move(slice));
  }
  return inside;
}

/// Of the picture: one slice.
struct TraceBox {
  std::size_t row = 0, ink = 0;
  double begin = 0, end = 0;
  std::string name;
};

class TracePicture {
 public:
  TracePicture(const std::vector<TraceSlice>& slices, double seconds)
      : summary_(planning::summarise(slices)),
        rows_(std::min(most_rows, summary_.ranks.size())),
        frame_{.left = left,
               .top = top,
               .width = plot_width,
               .bottom = top + row_height * double(rows_),
               .seconds = seconds} {
    for (const TraceSlice& slice : slices) {
      const std::size_t ink = ink_of_slice(slice), row = row_of(slice.rank);
      if (ink != nothing && row < rows_) {
        boxes_.push_back(
            {.row = row, .ink = ink, .begin = slice.begin, .end = slice.end, .name = slice.name});
      }
    }
    // By ink, so that what is painted later lies over the rest.
    std::ranges::stable_sort(
        boxes_, {}, [](const TraceBox& box) { return std::tuple(box.row, box.ink, box.begin); });
  }

  std::string text(const std::string& title) {
    out_ = svg_opening(left + plot_width + right, frame_.bottom + bottom, title, subtitle());
    out_ += svg_legend(left + plot_width, 66, meanings());
    draw_rows();
    out_ += svg_axis(frame_);
    draw_boxes();
    return out_ + "</svg>\n";
  }

 private:
  std::string subtitle() const {
    std::string words = fmt::format(
        "{} ranks, {}: {:.1f} % computing, {:.1f} % communication, {:.1f} % loading and stalls, "
        "{:.1f} % waiting for others",
        summary_.ranks.size(), readable_seconds(frame_.seconds), 100 * summary_.computing,
        100 * summary_.communicating, 100 * summary_.loading, 100 * summary_.idle);
    if (rows_ < summary_.ranks.size()) {
      words += fmt::format("; the first {} ranks", rows_);
    }
    return words;
  }

  /// Of what occurs: a legend of all would name much that nobody finds in the picture.
  std::vector<SvgInk> meanings() const {
    std::array<bool, nothing> occurs{};
    for (const TraceBox& box : boxes_) {
      occurs[box.ink] = true;
    }
    std::vector<SvgInk> meanings;
    for (std::size_t ink = 0; ink < nothing; ++ink) {
      if (occurs[ink]) {
        meanings.push_back({trace_inks[ink].name, trace_inks[ink].color});
      }
    }
    return meanings;
  }

  void draw_rows() {
    for (std::size_t row = 0; row < rows_; ++row) {
      const double y = y_of(row);
      const planning::RankTimes& rank = summary_.ranks[row];
      out_ += svg_box(left, y + 1, plot_width, row_height - 4, "fill=\"#f4f6f8\"/>\n");
      out_ += svg_label(left - 8, y + 17, "text-anchor=\"end\" fill=\"#3c4854\"",
                        fmt::format("rank {}", rank.rank));
      out_ += svg_label(left + plot_width + 8, y + 17, "fill=\"#5b6875\"",
                        fmt::format("{:.0f} % computing", 100 * rank.computing));
    }
  }

  /// Ranks are ascending.
  std::size_t row_of(std::int64_t rank) const {
    const auto found =
        std::ranges::lower_bound(summary_.ranks, rank, {}, &planning::RankTimes::rank);
    return static_cast<std::size_t>(found - summary_.ranks.begin());
  }

  /// Those that together are no wider than a pixel become one, else a trace of a million events is
  /// a picture of as many boxes.
  void draw_boxes() {
    for (std::size_t i = 0; i < boxes_.size();) {
      TraceBox box = boxes_[i];
      std::size_t joined = 1;
      for (; i + joined < boxes_.size(); ++joined) {
        const TraceBox& next = boxes_[i + joined];
        const bool same = next.row == box.row && next.ink == box.ink;
        if (!same || frame_.x_of(next.end) - frame_.x_of(box.begin) > narrowest) {
          break;
        }
        box.end = std::max(box.end, next.end);
      }
      draw(box, joined);
      i += joined;
    }
  }

  void draw(const TraceBox& box, std::size_t joined) {
    const TraceInk& ink = trace_inks[box.ink];
    const double x = frame_.x_of(box.begin);
    const double width = std::max(gap, frame_.x_of(box.end) - x - gap);
    const std::string what = joined > 1 ? fmt::format("{} x {}", joined, ink.name) : box.name;
    out_ += svg_box(
        x, y_of(box.row) + ink.lane.y, width, ink.lane.height,
        fmt::format("fill=\"{}\"><title>{}, {} to {}</title></rect>\n", ink.color,
                    svg_escaped(what), readable_seconds(box.begin), readable_seconds(box.end)));
  }

  static double y_of(std::size_t row) { return top + row_height * double(row); }

  // Pixels.
  static constexpr double left = 78, top = 92, plot_width = 1080, right = 122;
  static constexpr double row_height = 48, bottom = 46;
  static constexpr double gap = 0.3;      // between slices that follow each other
  static constexpr double narrowest = 1;  // of what is shown by itself
  // More rows than a screen shows would be read by nobody.
  static constexpr std::size_t most_rows = 64;

  const planning::TraceSummary summary_;
  const std::size_t rows_;
  const SvgFrame frame_;
  std::vector<TraceBox> boxes_;
  std::string out_;
};

}  // namespace

std::string trace_svg(const planning::TraceFile& trace, const std::string& title,
                      std::optional<int> step) {
  const TraceWindow window = window_of(trace.slices, step);
  return TracePicture(clipped(trace.slices, window), window.end - window.begin).text(title);
}

}  // namespace sprat::cli
