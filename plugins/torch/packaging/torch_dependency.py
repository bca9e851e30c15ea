"""The package's dependency: the minor version of PyTorch that its native module is built against."""

from __future__ import annotations

from backend import TORCH
from find_torch import torch_folder, version_of


def dynamic_metadata(field: str, settings: dict[str, object] | None = None) -> list[str]:
    """As scikit-build-core asks for it: c10d has no stable ABI, so another minor would not do."""
    if field != "dependencies" or settings:
        raise ValueError(f"only dependencies come from here, without settings; asked for {field}")
    folder = torch_folder()
    if folder is None:
        return [TORCH]
    return ["torch==" + ".".join(version_of(folder).split("+")[0].split(".")[:2]) + ".*"]


def get_requires_for_dynamic_metadata(settings: dict[str, object] | None = None) -> list[str]:
    return []
