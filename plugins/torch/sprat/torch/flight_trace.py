"""c10d's flight record of our operations: what ``_dump_fr_trace`` gives and ``torchfrtrace`` reads.

PyTorch's own recorder takes entries of PyTorch's own backends only, so Sprat keeps its own, in the
same form, and its entries are put into what PyTorch hands out. ``TORCH_FR_BUFFER_SIZE`` is how many
are kept (2000; 0: none); where it is set, each has the frames of Python that called.
``TORCH_FR_DUMP_TEMP_FILE=PREFIX`` has each rank write them to PREFIX and its number when its first
operation fails.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import torch._C._distributed_c10d as native_c10d
import torch.distributed.distributed_c10d as c10d

from sprat.torch import _native

# From the version on that has this list (2.15), PyTorch watches the groups of all other backends by hooks.
WATCHED = hasattr(c10d, "_FR_SELF_RECORDING_BACKENDS")
groups = _native.Groups(not WATCHED)  # Of this process; it keeps the record of them all.


def put_in() -> None:
    """Puts our entries into PyTorch's dumps. Again does nothing."""
    if WATCHED:
        return
    dumps = (("_dump_fr_trace", _dump_fr_trace), ("_dump_fr_trace_json", _dump_fr_trace_json))
    for name, ours in dumps:
        others = getattr(native_c10d, name, None)
        if others is not None and others is not ours:
            ours.others = others
            setattr(native_c10d, name, ours)
    if hasattr(_dump_fr_trace, "others"):
        groups._set_fr_version(pickle.loads(_dump_fr_trace.others(False, False, False))["version"])


def entries(includeCollectives: bool = True, includeStackTraces: bool = True,
            onlyActive: bool = False) -> dict[str, Any]:
    """Our part of a dump: PyTorch's dictionary of ``version``, ``pg_config``, ``pg_status`` and ``entries``."""
    return pickle.loads(groups._dump_fr_trace(includeCollectives, includeStackTraces, onlyActive))


def merged(others: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """One dump of both. Numbers of groups and entries go on where PyTorch's own end."""
    if not ours["pg_config"]:
        return others
    result = dict(others)
    result["comm_lib_version"] = others.get("comm_lib_version") or ours["comm_lib_version"]
    result["pg_config"] = {**others.get("pg_config", {}), **ours["pg_config"]}
    status = dict(others.get("pg_status", {}))
    first_group = 1 + max((int(number) for number in status), default=-1)
    for number, numbers in ours["pg_status"].items():
        status[str(first_group + int(number))] = numbers
    result["pg_status"] = status
    if "entries" in ours:
        before = list(others.get("entries", []))
        first_entry = 1 + max((entry["record_id"] for entry in before), default=-1)
        for entry in ours["entries"]:
            before.append({**entry, "pg_id": first_group + entry["pg_id"],
                           "record_id": first_entry + entry["record_id"]})
        result["entries"] = before
    return result


# The names of the parameters are PyTorch's.
def _dump_fr_trace(includeCollectives: bool = True, includeStackTraces: bool = True,
                   onlyActive: bool = False, *more: Any, **named: Any) -> bytes:
    others = pickle.loads(_dump_fr_trace.others(includeCollectives, includeStackTraces, onlyActive, *more, **named))
    return pickle.dumps(merged(others, entries(includeCollectives, includeStackTraces, onlyActive)), protocol=2)


def _dump_fr_trace_json(includeCollectives: bool = True, onlyActive: bool = False, *more: Any, **named: Any) -> bytes:
    others = json.loads(_dump_fr_trace_json.others(includeCollectives, onlyActive, *more, **named))
    return json.dumps(merged(others, entries(includeCollectives, False, onlyActive))).encode()
