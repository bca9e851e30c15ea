"""Every cell of the feature table, in the order of docs/pytorch_features.md."""

from __future__ import annotations

from cell import Cell
from cells import checkpoint, collectives, compiled, ddp, dtensor, fsdp, groups, pipeline, point_to_point

THEMES = (collectives, point_to_point, groups, ddp, fsdp, dtensor, pipeline, checkpoint, compiled)
CELLS: list[Cell] = [cell for theme in THEMES for cell in theme.CELLS]
