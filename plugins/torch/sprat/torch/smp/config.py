"""Reads an SMP configuration, v2 or v1: JSON in, every key's value out, or an error with a remedy.

Pure but for reading the files that it is given. The keys, their defaults and what they ask of each
other are the core's: mp/smp_keys.def.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any

from .. import _native

# What may be nested in each other, as the estimator of SageMaker has it.
SECTIONS = ("smdistributed", "modelparallel", "parameters")


@dataclass(frozen=True)
class Settings:
    """Every key of one generation with its value, given or default."""

    generation: str
    values: dict[str, Any]

    @property
    def shard_key(self) -> str:
        """The key that says how many ranks share one copy of the model."""
        return {"v1": "sharded_data_parallel_degree", "v2": "hybrid_shard_degree"}[self.generation]

    @property
    def shard_degree(self) -> int:
        """Ranks that share one copy of the model; 0: as many as there are."""
        return self.values[self.shard_key]


def resolve(config: dict | str | os.PathLike | None) -> Settings:
    """The settings that a configuration asks for; ValueError says key, value and remedy."""
    if not isinstance(config, dict):
        config = {} if config is None else _read(config)
    return Settings(**_native.smp_parameters(json.dumps(_plain(_opened(config)))))


def _opened(config: dict[str, Any]) -> dict[str, Any]:
    """With the sections that are given as JSON text or as a file, as SageMaker takes them too."""
    opened = dict(config)
    for name in SECTIONS:
        if isinstance(config.get(name), (str, os.PathLike)):
            opened[name] = _read(config[name])
        if isinstance(opened.get(name), dict):
            opened[name] = _opened(opened[name])
    return opened


def _plain(value: Any) -> Any:
    """What JSON has no word for as text, so that it is refused by the name of its key."""
    if isinstance(value, dict):
        return {str(key): _plain(inside) for key, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inside) for inside in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return os.fspath(value) if isinstance(value, os.PathLike) else repr(value)


def _read(config: str | os.PathLike) -> dict[str, Any]:
    """JSON text (it starts with a brace) or the JSON file of that name."""
    text, where = config, "the configuration"
    if not (isinstance(config, str) and config.lstrip().startswith("{")):
        where = os.fspath(config)
        try:
            with open(config, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise ValueError(
                f"the configuration {where!r} is neither JSON text (it starts with a brace) nor a "
                f"file that can be read: {error.strerror}"
            ) from error
    try:
        parsed = json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ValueError(f'{where} is JSON, but no object: it must be {{"key": value, ...}}')
    return parsed


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for index, (name, value) in enumerate(pairs):
        if any(name == earlier for earlier, _ in pairs[:index]):
            raise ValueError(f"{name} is given twice, the second time as {value!r}: keep one")
    return dict(pairs)
