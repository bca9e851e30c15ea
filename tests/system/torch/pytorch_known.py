"""PyTorch's own tests that fail on sprat, each with its reason; a failure that is not here fails the run."""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """Why a test fails, and with how many ranks."""

    reason: str
    sizes: tuple[int, ...] = (2, 3, 4)


FAILURES: dict[str, Known] = {
    "test_ddp_logging_data_cpu": Known(
        "PyTorch calls the process group of every third-party backend \"custom\" in DDP's log, not by its name"),
}

# Tests whose body asks for the backend's name, and knows only PyTorch's: they are told this one.
TOLD_NAMES: dict[str, str] = {
    "test_accumulate_gradients_no_sync": "gloo",
    "test_accumulate_gradients_no_sync_allreduce_hook": "gloo",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook": "gloo",
    "test_accumulate_gradients_no_sync_grad_is_view": "gloo",
}
