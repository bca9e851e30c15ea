// Ways to cut a model's tensors among tensor ranks, for tests of what must not depend on it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sprat/fsdp.hpp"

namespace sprat::fsdp {

/// thirds: rows of each third of the rows, as heads of queries, keys and values are cut.
enum class Cut { rows, columns, grid, thirds };

inline std::string cut_name(Cut cut) {
  switch (cut) {
    case Cut::rows:
      return "rows";
    case Cut::columns:
      return "columns";
    case Cut::grid:
      return "a grid";
    case Cut::thirds:
      return "rows of thirds";
  }
  return "";
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
  const int row_pieces = cut == Cut::columns ? 1 : cut == Cut::grid ? parts / 2 : parts;
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

/// The same, as one parameter or three.
inline std::vector<ParameterSpec> parts_of(const ParameterSpec& whole, Cut cut, int parts,
                                           int part) {
  const bool has_thirds = !whole.shape.empty() && whole.shape[0] > 0 && whole.shape[0] % 3 == 0;
  if (parts == 1 || cut != Cut::thirds || !has_thirds) {
    return {part_of(whole, cut, parts, part)};
  }
  std::vector<ParameterSpec> thirds(3, whole);
  for (int third = 0; third < 3; ++third) {
    thirds[static_cast<std::size_t>(third)].box =
        piece_of(piece_of(whole_box(whole.shape), 0, 3, third), 0, parts, part);
  }
  return thirds;
}

inline std::vector<UnitSpec> part_of(std::vector<UnitSpec> units, Cut cut, int parts, int part) {
  for (UnitSpec& unit : units) {
    std::vector<ParameterSpec> own;
    for (const ParameterSpec& parameter : unit.parameters) {
      for (ParameterSpec& piece : parts_of(parameter, cut, parts, part)) {
        own.push_back(std::move(piece));
      }
    }
    unit.parameters = std::move(own);
  }
  return units;
}

}  // namespace sprat::fsdp
