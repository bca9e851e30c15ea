// Draws spans of time as an SVG.
#include "cli/simulate/timeline.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "cli/svg.hpp"

namespace sprat::cli {
namespace {

using collectives::Span;
using collectives::Verb;

// Pixels.
constexpr double left = 118, top = 92, plot_width = 1040, right = 42;
constexpr double row_height = 26, host_gap = 12, bottom = 46;
constexpr double gap = 0.3;      // between spans that follow each other
constexpr double narrowest = 1;  // spans of one kind that together are no wider become one

// More rows than a screen shows would be read by nobody; the subtitle says how many ranks there
// are.
constexpr std::size_t most_rows = 64;

struct Ink {
  const char* name;
  const char* color;
  double lane, height;  ///< Within the row.
};
constexpr std::array inks = {
    Ink{"copy, pull", "#2a9d8f", 2, 11},
    Ink{"reduce", "#e76f51", 2, 11},
    Ink{"send", "#264f8c", 14, 4},
    Ink{"receive", "#7fb2e5", 19, 4},
};

const Ink& ink_of(Verb verb) {
  switch (verb) {
    case Verb::reduce:
      return inks[1];
    case Verb::send:
      return inks[2];
    case Verb::recv:
      return inks[3];
    case Verb::copy:
    case Verb::share:
    case Verb::signal:
    case Verb::wait:
      return inks[0];
  }
  return inks[0];
}

class Drawing {
 public:
  explicit Drawing(const Timeline& timeline)
      : timeline_(timeline),
        frame_{.left = left,
               .top = top,
               .width = plot_width,
               .seconds = timeline.seconds > 0 ? timeline.seconds : 1} {
    double y = top;
    const std::size_t rows = std::min(most_rows, timeline.host_of.size());
    for (std::size_t rank = 0; rank < rows; ++rank) {
      y += rank > 0 && timeline.host_of[rank] != timeline.host_of[rank - 1] ? host_gap : 0;
      row_.push_back(y);
      y += row_height;
    }
    frame_.bottom = y;
  }

  std::string text() {
    open();
    draw_legend();
    draw_rows();
    out_ += svg_axis(frame_);
    draw_spans();
    return out_ + "</svg>\n";
  }

 private:
  void open() {
    std::string subtitle = timeline_.subtitle;
    if (row_.size() < timeline_.host_of.size()) {
      subtitle += fmt::format("; ranks 0-{} of {}", row_.size() - 1, timeline_.host_of.size());
    }
    out_ =
        svg_opening(left + plot_width + right, frame_.bottom + bottom, timeline_.title, subtitle);
  }

  void draw_legend() {
    std::vector<SvgInk> meanings;
    for (const Ink& ink : inks) {
      meanings.push_back({ink.name, ink.color});
    }
    out_ += svg_legend(left + plot_width, 66, meanings);
  }

  void draw_rows() {
    for (std::size_t rank = 0; rank < row_.size(); ++rank) {
      out_ += svg_box(left, row_[rank] + 1, plot_width, row_height - 2, "fill=\"#f4f6f8\"/>\n");
      out_ += svg_label(left - 8, row_[rank] + 16, "text-anchor=\"end\" fill=\"#3c4854\"",
                        fmt::format("rank {}", rank));
      if (rank == 0 || timeline_.host_of[rank] != timeline_.host_of[rank - 1]) {
        out_ += svg_label(20, row_[rank] + 16, "font-weight=\"600\" fill=\"#1d2733\"",
                          fmt::format("host {}", timeline_.host_of[rank]));
      }
    }
  }

  void draw_spans() {
    std::vector<Span> spans = timeline_.spans;
    std::ranges::stable_sort(spans, {}, [](const Span& span) {
      return std::tuple(span.rank, &ink_of(span.verb), span.begin);
    });
    for (std::size_t i = 0; i < spans.size();) {
      Span span = spans[i];
      std::size_t joined = 1;
      for (; i + joined < spans.size(); ++joined) {
        const Span& after = spans[i + joined];
        const bool same = after.rank == span.rank && &ink_of(after.verb) == &ink_of(span.verb);
        if (!same || frame_.x_of(after.end) - frame_.x_of(span.begin) > narrowest) {
          break;
        }
        span.end = std::max(span.end, after.end);
      }
      draw(span, joined);
      i += joined;
    }
  }

  void draw(const Span& span, std::size_t steps) {
    if (static_cast<std::size_t>(span.rank) >= row_.size()) {
      return;
    }
    const Ink& ink = ink_of(span.verb);
    const double x = frame_.x_of(span.begin),
                 width = std::max(gap, frame_.x_of(span.end) - x - gap);
    const std::string whom = span.peer < 0 ? "" : fmt::format(" with rank {}", span.peer);
    const std::string what =
        steps > 1 ? fmt::format("{} steps", steps) : fmt::format("{}{}", name(span.verb), whom);
    out_ += svg_box(x, row_[static_cast<std::size_t>(span.rank)] + ink.lane, width, ink.height,
                    fmt::format("fill=\"{}\"><title>{}, {} to {}</title></rect>\n", ink.color, what,
                                readable_seconds(span.begin), readable_seconds(span.end)));
  }

  const Timeline& timeline_;
  SvgFrame frame_;
  std::vector<double> row_;  ///< Where each drawn rank's row begins.
  std::string out_;
};

}  // namespace

std::string to_svg(const Timeline& timeline) { return Drawing(timeline).text(); }

}  // namespace sprat::cli
