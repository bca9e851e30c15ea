"""Reads an SMP configuration, v2 or v1: JSON in, every key's value out, or an error with a remedy.

Pure but for reading the file that it is given, and free of torch. The keys are in smp_keys.py.
"""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass
from typing import Any

from .smp_keys import Derived, Key, keys_of

LAUNCHERS = ("mpi", "torch_distributed", "pytorchddp")


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
    given = parameters(config)
    generation = generation_of(given)
    keys = keys_of(generation)
    values = {name: _checked(keys[name], value) for name, value in given.items()}
    for name, key in keys.items():
        if name not in values and not isinstance(key.default, Derived):
            values[name] = key.default
    if "partitions" in given:
        values["pipeline_parallel_degree"] = values["partitions"]
    else:
        values["partitions"] = values.get("pipeline_parallel_degree")
    defaults = {name: _default(key, values) for name, key in keys.items()}
    values = {name: values.get(name, defaults[name]) for name in keys}
    _check_together(generation, given, values)
    for name in given:
        if not keys[name].served and values[name] != defaults[name]:
            raise ValueError(
                f"{name} = {values[name]!r} of SMP {generation} is not served yet, only "
                f"{defaults[name]!r} is: {keys[name].how}"
            )
    return Settings(generation, values)


def parameters(config: dict | str | os.PathLike | None) -> dict[str, Any]:
    """The parameters in a dict, JSON text or file, plain or nested as for SageMaker's estimator."""
    if config is None:
        return {}
    if not isinstance(config, dict):
        config = _read(config)
    if "smdistributed" in config:
        _only(config, ("smdistributed", *LAUNCHERS), "distribution")
        config = _section(config, "smdistributed")
        _only(config, ("modelparallel",), "smdistributed")
        config = _section(config, "modelparallel")
    elif "modelparallel" in config:
        _only(config, ("modelparallel",), "smdistributed")
        config = _section(config, "modelparallel")
    if "parameters" in config or "enabled" in config:
        _only(config, ("enabled", "parameters"), "modelparallel")
        if config.get("enabled", True) is not True:
            raise ValueError(
                f"modelparallel has enabled = {config['enabled']!r}: set it to true, or call "
                "init() without this configuration"
            )
        config = _section(config, "parameters") if "parameters" in config else {}
    return dict(config)


def generation_of(given: dict[str, Any]) -> str:
    """ "v1" or "v2", by the keys that only one of them has; "v2" if there are none."""
    v1, v2 = keys_of("v1"), keys_of("v2")
    unknown = [name for name in given if name not in v1 and name not in v2]
    if unknown:
        raise ValueError(
            "; ".join(_unknown(name, (*v2, *v1), "configuration key") for name in unknown)
        )
    only_v1 = [name for name in given if name not in v2]
    only_v2 = [name for name in given if name not in v1]
    if only_v1 and only_v2:
        raise ValueError(
            f"keys of both generations of SMP: {', '.join(only_v1)} (v1) and "
            f"{', '.join(only_v2)} (v2); keep those of one"
        )
    return "v1" if only_v1 else "v2"


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


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    """A nested object; SageMaker also takes its JSON text or file."""
    section = config[name]
    if isinstance(section, dict):
        return section
    if isinstance(section, (str, os.PathLike)):
        return _read(section)
    raise ValueError(f'{name} = {section!r}: it must be an object, {{"key": value, ...}}')


def _only(config: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in config:
        if name not in known:
            raise ValueError(_unknown(name, known, f"key in {where}"))


def _unknown(name: str, known: tuple[str, ...], what: str) -> str:
    nearest = difflib.get_close_matches(str(name), known, n=1)
    hint = f'did you mean "{nearest[0]}"?' if nearest else f"known are {', '.join(known)}"
    return f'"{name}" is no {what}: {hint}'


def _default(key: Key, values: dict[str, Any]) -> Any:
    return key.default.value(values) if isinstance(key.default, Derived) else key.default


def _checked(key: Key, value: Any) -> Any:
    """The value in its type; 5e8 is an integer too, and true is not."""
    if value is None and key.default is None:
        return None
    kind = type(value)
    if key.kind is int and kind is float and value.is_integer():
        value = int(value)
    elif key.kind is float and kind is int:
        value = float(value)
    fits = type(value) is key.kind
    if fits and key.kind in (int, float):
        fits = key.low <= value <= key.high
    if fits and key.choices:
        fits = value in key.choices
    if not fits:
        raise ValueError(
            f"{key.name} = {value!r} of SMP {key.generation} must be {key.legal()} "
            f"(default {key.default_text()})"
        )
    return value


def _check_together(generation: str, given: dict[str, Any], values: dict[str, Any]) -> None:
    """What keys of one generation ask of each other."""
    for broken, message in (_v1_conflicts if generation == "v1" else _v2_conflicts)(given, values):
        if broken:
            raise ValueError(message)


def _v2_conflicts(_: dict[str, Any], v: dict[str, Any]) -> list[tuple[bool, str]]:
    degree, context = v["hybrid_shard_degree"], v["context_parallel_degree"]
    return [
        (
            0 < degree < context,
            f"context_parallel_degree = {context} must be at most hybrid_shard_degree = {degree}",
        )
    ]


def _v1_conflicts(given: dict[str, Any], v: dict[str, Any]) -> list[tuple[bool, str]]:
    stages, tensor, shards = (
        v[name]
        for name in (
            "pipeline_parallel_degree",
            "tensor_parallel_degree",
            "sharded_data_parallel_degree",
        )
    )
    return [
        (
            "partitions" in given and "pipeline_parallel_degree" in given,
            "partitions and pipeline_parallel_degree are two names of one key: keep the second",
        ),
        (
            not v["auto_partition"] and "default_partition" not in given,
            "auto_partition = False needs default_partition, which is missing",
        ),
        (
            v["default_partition"] >= stages,
            f"default_partition = {v['default_partition']} must be less than "
            f"pipeline_parallel_degree = {stages}",
        ),
        (v["ddp"] and v["horovod"], "ddp and horovod are both True: keep ddp"),
        ("ddp_port" in given and "ddp" not in given, "ddp_port needs ddp, which is missing"),
        (
            "ddp_dist_backend" in given and "ddp" not in given,
            "ddp_dist_backend needs ddp, which is missing",
        ),
        (tensor > 1 and not v["ddp"], f"tensor_parallel_degree = {tensor} needs ddp = True"),
        (
            tensor > 1 and not v["prescaled_batch"],
            f"tensor_parallel_degree = {tensor} with prescaled_batch = False, a batch for each "
            "tensor-parallel rank, is not served yet: set prescaled_batch to True and choose "
            "batches by rdp_rank()",
        ),
        (
            shards > 1 and stages > 1,
            f"sharded_data_parallel_degree = {shards} cannot go with "
            f"pipeline_parallel_degree = {stages}: set one to 1",
        ),
        (
            shards > 1 and v["shard_optimizer_state"],
            f"sharded_data_parallel_degree = {shards} shards optimizer state already: remove "
            "shard_optimizer_state",
        ),
        (
            v["bf16"] and shards == 1,
            "bf16 needs sharded_data_parallel_degree above 1; else pass mp_policy to shard",
        ),
    ]
