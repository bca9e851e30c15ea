// Pieces of SVG pictures whose x axis is time.
#pragma once

#include <string>
#include <vector>

namespace sprat::cli {

/// Text of which nothing is markup.
std::string svg_escaped(const std::string& text);
/// A line of text; what would be markup in it is escaped. `style` holds attributes.
std::string svg_label(double x, double y, const std::string& style, const std::string& text);
/// A rectangle up to its attributes `style`, which end with "/>" or with what stands inside it.
std::string svg_box(double x, double y, double width, double height, const std::string& style);

struct SvgInk {
  std::string name, color;
};
/// What each colour means, from left to right up to `right`.
std::string svg_legend(double right, double y, const std::vector<SvgInk>& inks);

/// "250 µs", "1.5 ms", "3 s".
std::string readable_seconds(double seconds);
/// 1, 2 or 5 times a power of ten, five to ten of which make the whole.
double tick_of(double seconds);

/// What a picture of rows is made of, in pixels.
struct SvgFrame {
  double left = 0, top = 0, width = 0;  ///< Of the plot.
  double bottom = 0;                    ///< Where its rows end.
  double seconds = 1;                   ///< What the plot's width stands for.

  double x_of(double time) const { return left + width * time / seconds; }
};

/// The opening tag, a white ground, a title, and a line below it.
std::string svg_opening(double width, double height, const std::string& title,
                        const std::string& subtitle);
/// A line and a time at each tick.
std::string svg_axis(const SvgFrame& frame);

}  // namespace sprat::cli
