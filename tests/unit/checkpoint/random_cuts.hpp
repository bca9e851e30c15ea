// Shapes, boxes and grids drawn by chance, for tests of what is cut in one way and read in another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "sprat/parameters.hpp"

namespace sprat::fsdp {

/// One to four dimensions of up to nine indices each.
inline std::vector<std::int64_t> random_shape(std::mt19937_64& draw) {
  std::vector<std::int64_t> shape(1 + draw() % 4);
  for (std::int64_t& extent : shape) {
    extent = static_cast<std::int64_t>(1 + draw() % (shape.size() > 2 ? 5 : 9));
  }
  return shape;
}

inline Box random_box(std::mt19937_64& draw, const std::vector<std::int64_t>& shape) {
  Box box = whole_box(shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    box.offset[d] = static_cast<std::int64_t>(draw() % static_cast<std::uint64_t>(shape[d]));
    const auto room = static_cast<std::uint64_t>(shape[d] - box.offset[d]);
    box.extent[d] = static_cast<std::int64_t>(1 + draw() % room);
  }
  return box;
}

/// Boxes that make up a tensor, in any order: up to three pieces along each dimension, of which
/// some are cut further along the first, as shards cut them.
inline std::vector<Box> random_grid(std::mt19937_64& draw, const std::vector<std::int64_t>& shape) {
  std::vector<Box> boxes = {whole_box(shape)};
  for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
    const auto at = static_cast<std::size_t>(d);
    const int pieces = 1 + static_cast<int>(draw() % 3);
    std::vector<Box> finer;
    for (const Box& box : boxes) {
      for (int piece = 0; piece < pieces; ++piece) {
        finer.push_back(piece_of(box, d, pieces, piece));
      }
    }
    std::erase_if(finer, [&](const Box& box) { return box.extent[at] == 0; });
    boxes = finer;
  }
  std::vector<Box> shards;
  for (const Box& box : boxes) {
    const int pieces = 1 + static_cast<int>(draw() % 3);
    for (int piece = 0; piece < pieces; ++piece) {
      shards.push_back(piece_of(box, 0, pieces, piece));
    }
  }
  std::erase_if(shards, [](const Box& box) { return box.extent[0] == 0; });
  std::ranges::shuffle(shards, draw);
  return shards;
}

}  // namespace sprat::fsdp
