"""What `init()` of a script for SageMaker takes where the script gives it nothing."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from sprat.replacement import VARIABLE
from sprat.sagemaker import distribution_of

# Without it the library would take a configuration that says nothing for one of version 2.
V1_DEFAULTS = {"pipeline_parallel_degree": 1}


def init_v1(config: Any = None, **named: Any) -> Any:
    """`smdistributed.modelparallel.torch.init`: the estimator's parameters, or v1's defaults."""
    from sprat.torch import smp

    return smp.init(V1_DEFAULTS if (given := _given(config)) is None else given, **named)


def init_v2(config: Any = None, **named: Any) -> Any:
    """`torch.sagemaker.init`: the estimator's parameters, or v2's defaults."""
    from sprat.torch import smp

    return smp.init(_given(config), **named)


def get_logger() -> logging.Logger:
    return logging.getLogger("sprat.sagemaker")


def _given(config: Any) -> Any:
    """The script's, else that of the file of --sagemaker, else what a job of SageMaker has."""
    if config is not None:
        return config
    path = distribution_of(os.environ.get(VARIABLE, ""))
    if path is not None:
        return parameters(path)
    return os.environ.get("SM_HP_MP_PARAMETERS") or None


def parameters(path: str) -> dict[str, Any] | str | None:
    """The parameters of an estimator's `distribution`, a JSON file; None where it has none.

    The file may be the whole `distribution`, or what it has under "smdistributed", "modelparallel"
    or "parameters". A library that it disables is as good as absent. ValueError says what is wrong.
    """
    found = _read(path)
    if any(name in found for name in ("torch_distributed", "pytorchddp", "mpi", "smdistributed")):
        found = _section(path, found, "smdistributed")
        if "modelparallel" not in found:
            return None
    if "modelparallel" in found:
        found = _section(path, found, "modelparallel")
    enabled = found.get("enabled", True)
    if not isinstance(enabled, bool):
        raise ValueError(f'{path}: "enabled" is {json.dumps(enabled)}: it must be true or false')
    if not enabled:
        return None
    if isinstance(found.get("parameters"), str):  # JSON as text, which init() takes too
        return found["parameters"]
    if "enabled" in found or "parameters" in found:
        return _section(path, found, "parameters") or None
    return found or None


def _section(path: str, found: dict[str, Any], name: str) -> dict[str, Any]:
    section = found.get(name, {})
    if not isinstance(section, dict):
        raise ValueError(f'{path}: "{name}" is {json.dumps(section)}: it must be an object, {{...}}')
    return section


def _read(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        try:
            found = json.load(file)
        except ValueError as error:  # no JSON, or no UTF-8
            raise ValueError(f"{path} is not JSON: {error}; write the estimator's distribution "
                             "as json.dumps has it") from error
    if not isinstance(found, dict):
        raise ValueError(f'{path} is JSON, but no object: it must be {{"smdistributed": ...}}')
    return found
