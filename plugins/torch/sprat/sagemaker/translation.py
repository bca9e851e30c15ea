"""SMP's translations between its layers' names and those of transformers: the names are the same here."""

from __future__ import annotations

from typing import Any


def unchanged(state_dict: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
    """The state: models keep the names of their modules, however they are cut."""
    return state_dict
