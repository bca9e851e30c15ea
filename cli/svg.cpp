#include "cli/svg.hpp"

#include <fmt/core.h>

#include <cmath>

namespace sprat::cli {
namespace {

/// Of an entry of a legend: nobody measures a font that the reader's machine chooses.
double width_of(const SvgInk& ink) { return 26 + 7.0 * static_cast<double>(ink.name.size()); }

}  // namespace

std::string svg_escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    const bool control = letter >= 0 && letter < ' ';  // XML has none of them
    out += letter == '<'   ? "&lt;"
           : letter == '&' ? "&amp;"
                           : std::string(1, control ? ' ' : letter);
  }
  return out;
}

std::string readable_seconds(double seconds) {
  const bool in_us = seconds < 1e-3, in_ms = seconds < 1;
  return fmt::format("{:.4g} {}",
                     seconds * (in_us   ? 1e6
                                : in_ms ? 1e3
                                        : 1),
                     in_us   ? "µs"
                     : in_ms ? "ms"
                             : "s");
}

double tick_of(double seconds) {
  const double power = std::pow(10, std::floor(std::log10(seconds)));
  for (const double step : {0.1, 0.2, 0.5}) {
    if (seconds / (step * power) <= 10) {
      return step * power;
    }
  }
  return power;
}

std::string svg_label(double x, double y, const std::string& style, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style,
                     svg_escaped(text));
}

std::string svg_box(double x, double y, double width, double height, const std::string& style) {
  return fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" {}", x, y,
                     width, height, style);
}

std::string svg_opening(double width, double height, const std::string& title,
                        const std::string& subtitle) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
             "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"system-ui, 'DejaVu Sans', "
             "sans-serif\" font-size=\"12\">\n",
             width, height) +
         // Without it pages of a dark theme would show dark text on a dark ground.
         svg_box(0, 0, width, height, "fill=\"#ffffff\"/>\n") +
         svg_label(20, 32, "font-size=\"19\" font-weight=\"600\" fill=\"#1d2733\"", title) +
         svg_label(20, 53, "fill=\"#5b6875\"", subtitle);
}

std::string svg_legend(double right, double y, const std::vector<SvgInk>& inks) {
  double x = right;
  for (const SvgInk& ink : inks) {
    x -= width_of(ink);
  }
  std::string out;
  for (const SvgInk& ink : inks) {
    out += svg_box(x, y, 12, 10, fmt::format("rx=\"2\" fill=\"{}\"/>\n", ink.color));
    out += svg_label(x + 17, y + 9, "fill=\"#3c4854\"", ink.name);
    x += width_of(ink);
  }
  return out;
}

std::string svg_axis(const SvgFrame& frame) {
  std::string out;
  const double tick = tick_of(frame.seconds), end = frame.bottom + 6;
  // The last tick may lie a rounding error beyond the end.
  for (int i = 0; i * tick <= frame.seconds * (1 + 1e-9); ++i) {
    const double x = frame.x_of(i * tick);
    out += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#c9d1d9\" "
        "stroke-width=\"0.7\"/>\n",
        x, frame.top - 4, end);
    out += svg_label(x, end + 16, "text-anchor=\"middle\" fill=\"#5b6875\"",
                     i == 0 ? "0" : readable_seconds(i * tick));
  }
  return out;
}

}  // namespace sprat::cli
