"""Which backend the world has for which device."""

from __future__ import annotations

import torch.distributed as dist


def backends() -> dict[str, str]:
    """The world's backend for each type of device."""
    return dict(pair.split(":") for pair in str(dist.get_backend_config()).split(","))
