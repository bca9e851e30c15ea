// Draws spans of time as an SVG.
#include "cli/simulate/timeline.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

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

std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    out += letter == '<' ? "&lt;" : letter == '&' ? "&amp;" : std::string(1, letter);
  }
  return out;
}

std::string readable(double seconds) {
  const bool in_us = seconds < 1e-3, in_ms = seconds < 1;
  return fmt::format("{:.4g} {}",
                     seconds * (in_us   ? 1e6
                                : in_ms ? 1e3
                                        : 1),
                     in_us   ? "µs"
                     : in_ms ? "ms"
                             : "s");
}

/// 1, 2 or 5 times a power of ten, five to ten of which make the whole.
double tick_of(double seconds) {
  const double power = std::pow(10, std::floor(std::log10(seconds)));
  for (const double step : {0.1, 0.2, 0.5}) {
    if (seconds / (step * power) <= 10) {
      return step * power;
    }
  }
  return power;
}

std::string label(double x, double y, const std::string& style, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, escaped(text));
}

std::string box(double x, double y, double width, double height, const std::string& style) {
  return fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" {}", x, y,
                     width, height, style);
}

class Drawing {
 public:
  explicit Drawing(const Timeline& timeline) : timeline_(timeline) {
    double y = top;
    const std::size_t rows = std::min(most_rows, timeline.host_of.size());
    for (std::size_t rank = 0; rank < rows; ++rank) {
      y += rank > 0 && timeline.host_of[rank] != timeline.host_of[rank - 1] ? host_gap : 0;
      row_.push_back(y);
      y += row_height;
    }
    height_ = y + bottom;
  }

  std::string text() {
    open();
    draw_legend();
    draw_rows();
    draw_axis();
    draw_spans();
    return out_ + "</svg>\n";
  }

 private:
  double x_of(double seconds) const { return left + plot_width * seconds / whole(); }
  double whole() const { return timeline_.seconds > 0 ? timeline_.seconds : 1; }

  void open() {
    const double width = left + plot_width + right;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" "
        "font-size=\"12\">\n",
        width, height_);
    out_ += box(0, 0, width, height_, "fill=\"#ffffff\"/>\n");
    out_ += label(20, 32, "font-size=\"19\" font-weight=\"600\" fill=\"#1d2733\"", timeline_.title);
    std::string subtitle = timeline_.subtitle;
    if (row_.size() < timeline_.host_of.size()) {
      subtitle += fmt::format("; ranks 0-{} of {}", row_.size() - 1, timeline_.host_of.size());
    }
    out_ += label(20, 53, "fill=\"#5b6875\"", subtitle);
  }

  void draw_legend() {
    double x = left + plot_width;
    for (const Ink& ink : inks) {
      x -= 26 + 7.0 * static_cast<double>(std::string_view(ink.name).size());
    }
    for (const Ink& ink : inks) {
      out_ += box(x, 66, 12, 10, fmt::format("rx=\"2\" fill=\"{}\"/>\n", ink.color));
      out_ += label(x + 17, 75, "fill=\"#3c4854\"", ink.name);
      x += 26 + 7.0 * static_cast<double>(std::string_view(ink.name).size());
    }
  }

  void draw_rows() {
    for (std::size_t rank = 0; rank < row_.size(); ++rank) {
      out_ += box(left, row_[rank] + 1, plot_width, row_height - 2, "fill=\"#f4f6f8\"/>\n");
      out_ += label(left - 8, row_[rank] + 16, "text-anchor=\"end\" fill=\"#3c4854\"",
                    fmt::format("rank {}", rank));
      if (rank == 0 || timeline_.host_of[rank] != timeline_.host_of[rank - 1]) {
        out_ += label(20, row_[rank] + 16, "font-weight=\"600\" fill=\"#1d2733\"",
                      fmt::format("host {}", timeline_.host_of[rank]));
      }
    }
  }

  void draw_axis() {
    const double end = height_ - bottom + 6, tick = tick_of(whole());
    for (int i = 0; i * tick <= whole() * (1 + 1e-9); ++i) {
      const double x = x_of(i * tick);
      out_ += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#c9d1d9\" "
          "stroke-width=\"0.7\"/>\n",
          x, top - 4, end);
      out_ += label(x, end + 16, "text-anchor=\"middle\" fill=\"#5b6875\"",
                    i == 0 ? "0" : readable(i * tick));
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
        if (!same || x_of(after.end) - x_of(span.begin) > narrowest) {
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
    const double x = x_of(span.begin), width = std::max(gap, x_of(span.end) - x - gap);
    const std::string whom = span.peer < 0 ? "" : fmt::format(" with rank {}", span.peer);
    const std::string what =
        steps > 1 ? fmt::format("{} steps", steps) : fmt::format("{}{}", name(span.verb), whom);
    out_ += box(x, row_[static_cast<std::size_t>(span.rank)] + ink.lane, width, ink.height,
                fmt::format("fill=\"{}\"><title>{}, {} to {}</title></rect>\n", ink.color, what,
                            readable(span.begin), readable(span.end)));
  }

  const Timeline& timeline_;
  std::vector<double> row_;  ///< Where each drawn rank's row begins.
  double height_ = 0;
  std::string out_;
};

}  // namespace

std::string to_svg(const Timeline& timeline) { return Drawing(timeline).text(); }

}  // namespace sprat::cli
