"""Which rank of the pipeline has which module: by the planner, by hand, or from a file."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .. import _native
from .made_inside import MadeInside

# The root's name among a partition's pieces, which have no empty names.
ROOT = "model"
_PARTITIONS = MadeInside("_sprat_partition")


@dataclass(frozen=True)
class Split:
    """The decision: the rank of each module by its name, "" for the root.

    Of a model that is cut at operations, the ranks of parameters and buffers by theirs.
    """

    owners: dict[str, int]
    at_operations: bool = False

    def owner_of(self, name: str) -> int:
        """The rank of a module, or of the nearest around it that is placed."""
        while name not in self.owners:
            name = name.rpartition(".")[0]
        return self.owners[name]


def partition(number: int) -> contextlib.AbstractContextManager:
    """Modules that are made inside belong on rank `number` of the pipeline.

    Honoured where `auto_partition` is false. What is inside of a module goes where the module does,
    unless it was made in a partition of its own.
    """
    return _PARTITIONS(number)


def set_partition(module: nn.Module, number: int) -> None:
    """As partition(), of a module that is made, and of all in it. Before the first step."""
    for inside in module.modules():
        _PARTITIONS.mark(inside, number)


def split_by_hand(module: nn.Module, default: int, partitions: int) -> Split:
    """By the partitions that modules were made in. ValueError names what has no such rank."""
    owners = {"": 0}  # the step's body runs where the root is
    for name, inside in list(module.named_modules())[1:]:
        parent = name.rpartition(".")[0]
        owner = _PARTITIONS.of(inside, owners[parent] if parent else default)
        if not 0 <= owner < partitions:
            raise ValueError(
                f"module {name!r} was made in partition({owner}), and there are "
                f"{partitions}: 0 to {partitions - 1}; pipeline_parallel_degree says how many"
            )
        owners[name] = owner
    _require_one_partition(module)
    return Split(owners)


def _require_one_partition(module: nn.Module) -> None:
    """ValueError where two modules that share a parameter were made in two partitions."""
    first: dict[int, tuple[str, int]] = {}
    for name, inside in module.named_modules():
        number = _PARTITIONS.of(inside)
        for key, parameter in inside.named_parameters(recurse=False) if number is not None else ():
            other, its_number = first.setdefault(id(parameter), (name, number))
            if its_number != number:
                raise ValueError(
                    f"module {name!r} was made in partition({number}), and shares its parameter {key!r} with module "
                    f"{other!r} of partition({its_number}): a parameter has one rank, so put both in one partition"
                )


def split_automatically(costs: dict[str, Any], partitions: int, goal: str,
                        memory_weight: float) -> Split:
    """By the tree planner. costs: {"module": ...} as docs/partition.md has it, names from ROOT."""
    cut = _native.partition(json.dumps(costs), "tree", partitions, goal, memory_weight)
    return Split({_without_root(name): rank for name, rank in zip(cut["names"], cut["partition"])})


def write_partition(path: str, split: Split, module: nn.Module, partitions: int) -> None:
    """A partition as JSON; read_partition() takes it for the same model alone."""
    text = {"partitions": partitions, "parameters": _parameters(module), "owners": split.owners}
    if split.at_operations:
        text["at_operations"] = True
    with open(path, "w", encoding="utf-8") as file:
        json.dump(text, file, indent=1)


def read_partition(path: str, module: nn.Module, partitions: int) -> Split:
    """ValueError says what differs if the file is of another model or number of partitions."""
    try:
        with open(path, encoding="utf-8") as file:
            text = json.load(file)
        kept, owners = dict(text["parameters"]), dict(text["owners"])
        cut_for, at_operations = text["partitions"], bool(text.get("at_operations"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"partition_file {path!r} cannot be read: {error!r}") from error
    if cut_for != partitions:
        raise ValueError(
            f"partition_file {path!r} has {cut_for} partitions, and "
            f"pipeline_parallel_degree is {partitions}: leave load_partition out to cut anew"
        )
    here = _parameters(module)
    for name in [*here, *kept]:
        if here.get(name) != kept.get(name):
            raise ValueError(
                f"partition_file {path!r} is of another model: parameter {name!r} has shape "
                f"{kept.get(name)} there, {here.get(name)} here"
            )
    if at_operations:
        known = {"", *(name for name, _ in _named_tensors(module))}
        wanted = {""}
    else:
        wanted = {name for name, _ in module.named_modules()}
        known = {name for name, _ in module.named_modules(remove_duplicate=False)}
    for name in wanted | set(owners):
        owner = owners.get(name)
        if name not in known or type(owner) is not int or not 0 <= owner < partitions:
            raise ValueError(
                f"partition_file {path!r} gives module {name or ROOT!r} to rank {owner!r}: each "
                f"module of the model has a rank from 0 to {partitions - 1}"
            )
    if owners[""] != 0:
        raise ValueError(f"partition_file {path!r} gives the model to rank {owners['']}, not 0")
    return Split(owners, at_operations)


def split_at_operations(module: nn.Module, owners: dict[str, int]) -> Split:
    """owners: of parameters and buffers that operations use; all others are the root's."""
    ranks = {"": 0}
    held = {id(one): owners[name] for name, one in _named_tensors(module) if name in owners}
    for name, one in _named_tensors(module):  # by each name that a shared one has
        if id(one) in held:
            ranks[name] = held[id(one)]
    return Split(ranks, at_operations=True)


def _named_tensors(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False)]


def together(split: Split, module: nn.Module) -> Split:
    """The split with modules that share a parameter on one rank: that of the first of them.

    A module that is reached by several names has its rank under each of them, as its parameters in a state have.
    """
    if split.at_operations:
        return split
    owners = dict(split.owners)
    holders: dict[int, str] = {}
    for name, inside in module.named_modules():
        for parameter in inside.parameters(recurse=False):
            first = holders.setdefault(id(parameter), name)
            if first != name:
                owners[name] = Split(owners).owner_of(first)
    names: dict[int, str] = {}
    for name, inside in module.named_modules(remove_duplicate=False):
        first = names.setdefault(id(inside), name)
        if first != name:
            owners[name] = Split(owners).owner_of(first)
    return Split(owners)


def _parameters(module: nn.Module) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in module.named_parameters()}


def _without_root(name: str) -> str:
    return name[len(ROOT) + 1 :]
