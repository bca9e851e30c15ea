// Ways to cut a model's tensors among tensor ranks, for tests of what must not depend on it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

enum class Cut { rows, columns, grid };

inline std::string cut_name(Cut cut) {
  return cut == Cut::rows ? "rows" : cut == Cut::columns ? "columns" : "a grid";
}

/// What tensor rank `part` of `parts` has of a parameter: whatever cannot be cut in this way each
/// of them has, and those that have what one before them has too are tied to it. A grid is 2 pieces
/// of columns by parts / 2 of rows.
inline ParameterSpec part_of(ParameterSpec whole, Cut cut, int parts, int part) {
  if (parts == 1) {
    return whole;
  }
  const std::size_t dimensions = whole.shape.size();
  const Box all = whole_box(whole.shape);
  const int row_pieces = cut == Cut::columns ? 1 : cut == Cut::rows ? parts : parts / 2;
  const int column_pieces = parts / row_pieces;
  const int row = part / column_pieces, column = part % column_pieces;
  const bool by_rows = dimensions >= 1 && row_pieces > 1;
  const bool by_columns = dimensions >= 2 && column_pieces > 1;
  Box box = by_rows ? piece_of(all, 0, row_pieces, row) : all;
  box = by_columns ? piece_of(box, 1, column_pieces, column) : box;
  whole.tied = whole.tied || (!by_rows && row > 0) || (!by_columns && column > 0);
  if (by_rows || by_columns) {
    whole.box = box;
  }
  return whole;
}

inline std::vector<UnitSpec> part_of(std::vector<UnitSpec> units, Cut cut, int parts, int part) {
  for (UnitSpec& unit : units) {
    for (ParameterSpec& parameter : unit.parameters) {
      parameter = part_of(std::move(parameter), cut, parts, part);
    }
  }
  return units;
}

}  // namespace sprat::fsdp
