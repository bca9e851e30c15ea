"""A model's own plan for tensor parallelism, as transformers keeps it: layer names to ways of cutting."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from torch import nn

from . import regions
from .linear import ColumnLinear, RowLinear

log = logging.getLogger(__name__)
# What transformers calls them, in its versions.
WAYS: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "colwise": ColumnLinear,
    "colwise_rep": lambda inside: ColumnLinear(inside, gathers=True),
    "colwise_gather_output": lambda inside: ColumnLinear(inside, gathers=True),
    "rowwise": RowLinear,
}


def plan_of(root: nn.Module) -> dict[str, str]:
    """Patterns of names, * being a number, and how to cut them; {} of a model without a plan."""
    plan = getattr(root, "_tp_plan", None) or {}
    return dict(plan) if isinstance(plan, dict) else {}


def apply_plan(root: nn.Module, plan: dict[str, str], shared: set[int]) -> None:
    """Cuts the linear layers that the plan names. ValueError if sizes do not divide.

    Ways that the table lacks leave a layer whole, and so do shared parameters; a plan's layers go
    together, so one that does not divide is an error and no layer stays as it is.
    """
    _require_heads(root)
    for name, module in list(root.named_modules()):
        way = _way(name, plan)
        if way is None or not isinstance(module, nn.Linear):
            continue
        gathers = way in ("colwise_rep", "colwise_gather_output")
        if way not in WAYS or gathers and id(module.weight) in shared:
            log.info("%s stays whole: %s", name, way)
            continue
        _require_size(name, module, way)
        parent, _, key = name.rpartition(".")
        setattr(root.get_submodule(parent), key, WAYS[way](module))


def _way(name: str, plan: dict[str, str]) -> str | None:
    general = re.sub(r"\d+", "*", name)
    return plan.get(name) or plan.get(general)


def _require_size(name: str, module: nn.Linear, way: str) -> None:
    size = module.in_features if way == "rowwise" else module.out_features
    if size % regions.ranks() != 0:
        raise ValueError(
            f"layer {name!r} has {size} features, which tensor_parallel_degree = {regions.ranks()} "
            "does not divide: choose another degree"
        )


def _require_heads(root: nn.Module) -> None:
    config = getattr(root, "config", None)
    for key in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, key, None)
        if heads is not None and heads % regions.ranks() != 0:
            raise ValueError(
                f"the model has {key} = {heads}, which tensor_parallel_degree = {regions.ranks()} "
                "does not divide: a head is one rank's"
            )


def shared_parameters(root: nn.Module) -> set[int]:
    """Ids of those that have several places in the model."""
    seen, shared = set(), set()
    for _, one in root.named_parameters(remove_duplicate=False):
        (shared if id(one) in seen else seen).add(id(one))
    return shared
