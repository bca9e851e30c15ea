// Draws a simulated schedule as an SVG.
#include "cli/pipeline/picture.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "cli/svg.hpp"
#include "mp/draw.hpp"
#include "mp/text.hpp"

namespace sprat::cli {
namespace {

using mp::Op;

/// Where a span stands within its row, in pixels.
struct Lane {
  double y = 0, height = 0;
};
constexpr Lane computing{2, 22}, upper_half{2, 11}, lower_half{13, 11}, wires{26, 3}, tiers{30, 3};

struct Brush {
  Op op{};
  const char* name;
  /// Of the first stage of a rank, its second, ...; then again.
  std::array<const char*, 4> colors;
  Lane lane;
};
// Dark enough for white numbers; the stages of a rank differ in shade.
constexpr std::array brushes = {
    Brush{Op::forward, "forward", {"#264f8c", "#4a86cf", "#12305c", "#6a9bd8"}, computing},
    Brush{Op::backward, "backward", {"#1f7a5c", "#3fa37f", "#0f4a37", "#56ad8d"}, computing},
    Brush{Op::backward_input,
          "input's gradient",
          {"#1f7a5c", "#3fa37f", "#0f4a37", "#56ad8d"},
          computing},
    Brush{Op::backward_weight,
          "weights' gradients",
          {"#b4582c", "#d17f52", "#7c3715", "#d08f68"},
          computing},
    Brush{Op::recompute,
          "forward once more",
          {"#6b5b95", "#8d7fb5", "#463a68", "#9c90bf"},
          computing},
    Brush{Op::send_forward, "message", {"#7fb2e5", "#7fb2e5", "#7fb2e5", "#7fb2e5"}, wires},
    Brush{Op::send_backward,
          "gradient's message",
          {"#8ccbb3", "#8ccbb3", "#8ccbb3", "#8ccbb3"},
          wires},
    Brush{Op::unshard, "gather", {"#c9a227", "#c9a227", "#c9a227", "#c9a227"}, wires},
    Brush{Op::reduce, "reduction", {"#e76f51", "#e76f51", "#e76f51", "#e76f51"}, wires},
    Brush{Op::store, "store", {"#9aa5b1", "#9aa5b1", "#9aa5b1", "#9aa5b1"}, tiers},
    Brush{Op::load, "load", {"#5b6875", "#5b6875", "#5b6875", "#5b6875"}, tiers},
};

/// Null: not drawn. Receives are the ends of messages, and a reshard takes no time.
const Brush* brush_of(Op op) {
  const auto found = std::ranges::find(brushes, op, &Brush::op);
  return found == brushes.end() ? nullptr : &*found;
}

class Picture {
 public:
  Picture(const mp::Schedule& schedule, const mp::Timeline& made)
      : schedule_(schedule),
        made_(made),
        chunks_(mp::chunks_of(schedule)),
        rows_(std::min(most_rows, schedule.actions.size())),
        frame_{.left = left,
               .top = top,
               .width = plot_width,
               .bottom = top + row_height * double(rows_),
               .seconds = made.makespan > 0 ? made.makespan : 1} {}

  std::string text() {
    out_ =
        svg_opening(left + plot_width + right, frame_.bottom + bottom, schedule_.name, subtitle());
    out_ += svg_legend(left + plot_width, 66, meanings());
    draw_rows();
    out_ += svg_axis(frame_);
    for (std::size_t rank = 0; rank < rows_; ++rank) {
      for (std::size_t i = 0; i < schedule_.actions[rank].size(); ++i) {
        draw(rank, schedule_.actions[rank][i], made_.spans[rank][i]);
      }
    }
    return out_ + "</svg>\n";
  }

 private:
  std::string subtitle() const {
    const auto ranks = schedule_.ranks();
    std::string text = fmt::format("{} ranks, {} stages, {} micro-batches: {}, {:.1f} % bubble",
                                   ranks, schedule_.stages(), schedule_.microbatches,
                                   readable_seconds(made_.makespan), 100 * made_.bubble);
    if (rows_ < schedule_.actions.size()) {
      text += fmt::format("; ranks 0-{} of {}", rows_ - 1, ranks);
    }
    return text;
  }

  /// Of what occurs: a legend of all would name much that nobody finds in the picture.
  std::vector<SvgInk> meanings() const {
    std::vector<SvgInk> meanings;
    for (const Brush& brush : brushes) {
      const bool occurs = std::ranges::any_of(schedule_.actions, [&](const auto& actions) {
        return std::ranges::any_of(actions, [&](const mp::Action& action) {
          const bool half = brush.op == Op::forward || brush.op == Op::backward;
          return action.op == brush.op || (half && action.op == Op::overlap);
        });
      });
      if (occurs) {
        meanings.push_back({brush.name, brush.colors[0]});
      }
    }
    return meanings;
  }

  void draw_rows() {
    for (std::size_t rank = 0; rank < rows_; ++rank) {
      const double y = row(rank);
      out_ += svg_box(left, y + 1, plot_width, row_height - 2, "fill=\"#f4f6f8\"/>\n");
      out_ += svg_label(left - 8, y + 18, "text-anchor=\"end\" fill=\"#3c4854\"",
                        fmt::format("rank {}", rank));
      out_ += svg_label(left + plot_width + 8, y + 18, "fill=\"#5b6875\"",
                        fmt::format("active {}", made_.ranks[rank].peak_microbatches));
    }
  }

  void draw(std::size_t rank, const mp::Action& action, const mp::TimeSpan& span) {
    // One beside the other, each in half of the lane.
    if (action.op == Op::overlap) {
      draw(rank, action, span, brushes[0], action.stage, action.microbatch, upper_half);
      draw(rank, action, span, brushes[1], action.other_stage, action.other_microbatch, lower_half);
    } else if (const Brush* brush = brush_of(action.op);
               brush != nullptr && span.end > span.start) {
      draw(rank, action, span, *brush, action.stage, action.microbatch, brush->lane);
    }
  }

  void draw(std::size_t rank, const mp::Action& action, const mp::TimeSpan& span,
            const Brush& brush, int stage, int microbatch, const Lane& lane) {
    const double x = frame_.x_of(span.start), y = row(rank) + lane.y;
    const double width = std::max(gap, frame_.x_of(span.end) - x - gap);
    const auto shade = std::size_t(chunks_[std::size_t(stage)]) % brush.colors.size();
    out_ += svg_box(
        x, y, width, lane.height,
        fmt::format("fill=\"{}\"><title>{}, {} to {}</title></rect>\n", brush.colors[shade],
                    mp::to_text(action), readable_seconds(span.start), readable_seconds(span.end)));
    // A number that is wider than its span would be read as its neighbour's.
    const std::string number = std::to_string(microbatch);
    if (lane.height >= upper_half.height && width > digit_width * double(number.size()) + 2) {
      out_ += svg_label(x + width / 2, y + lane.height / 2 + 3.5,
                        "text-anchor=\"middle\" font-size=\"10\" fill=\"#ffffff\" "
                        "pointer-events=\"none\"",
                        number);
    }
  }

  // Pixels.
  static constexpr double left = 78, top = 92, plot_width = 1080, right = 92;
  static constexpr double row_height = 36, bottom = 46;
  static constexpr double gap = 0.4;        // between spans that follow each other
  static constexpr double digit_width = 6;  // of a micro-batch's number
  static constexpr std::size_t most_rows = 64;

  static double row(std::size_t rank) { return top + row_height * double(rank); }

  const mp::Schedule& schedule_;
  const mp::Timeline& made_;
  const std::vector<int> chunks_;
  const std::size_t rows_;
  const SvgFrame frame_;
  std::string out_;
};

}  // namespace

std::string to_svg(const mp::Schedule& schedule, const mp::Timeline& made) {
  return Picture(schedule, made).text();
}

}  // namespace sprat::cli
