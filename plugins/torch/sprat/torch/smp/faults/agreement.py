"""What all ranks that hold parts of one model must decide alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..placement import CommGroup
from ..server.server import StepFailed
from ..state import state
from .naming import rank_name


def any_has(found: bool) -> bool:
    """Whether one of the ranks that update parts of one model has found it; they call together.

    Replicas have the same gradients, and are not asked, unless they divide parameters or their
    updates.
    """
    kinds = [CommGroup.MP_GROUP]
    if state.hybrid_shard_degree > 1 or state.config.get("shard_optimizer_state"):
        kinds.append(CommGroup.RDP_GROUP)
    worst = torch.tensor([float(found)])
    for kind in kinds:
        dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=state.groups[kind])
    return bool(worst.item())


def failure_text(error: BaseException | None, where: str = "") -> str:
    """Of this rank, as others shall read it; of a step that has ended on several ranks what all of them say."""
    if error is None:
        return ""
    if isinstance(error, StepFailed):
        return str(error)
    pipeline = state.groups[CommGroup.PP_GROUP]
    name = rank_name(dist.get_rank(pipeline), dist.get_process_group_ranks(pipeline))
    return f"{name}: {f'{where}: ' * bool(where)}{type(error).__name__}: {error}"


def require_all(error: BaseException | None, kinds: Sequence[CommGroup]) -> None:
    """Raises on every rank that these groups connect what one of them has failed by: `error`, or StepFailed.

    The ranks call it together, those that failed too. One small sum a group where none has. Groups one after
    the other: of all ranks of the model and then its replicas, it reaches all that there are.
    """
    text = failure_text(error)
    for kind in kinds:
        text = _first_text(text, state.groups[kind])
    if error is not None:
        try:
            raise error
        finally:
            del error  # its traceback has this frame
    if text:
        raise StepFailed(text)


def on_all(what: str, part: Callable[[], Any], remedy: str, kinds: Sequence[CommGroup]) -> Any:
    """What `part` returns, once it has ended well on all ranks that these groups connect, as in require_all().

    Else StepFailed on all of them: the rank, what failed there, and what to do.
    """
    result, error = None, None
    try:
        result = part()
    except (KeyboardInterrupt, SystemExit, StepFailed) as one:
        error = one
    except BaseException as one:
        error = StepFailed(f"{failure_text(one, what)}; {remedy}")
        error.__cause__ = one
    require_all(error, kinds)
    return result


def _first_text(text: str, group: dist.ProcessGroup) -> str:
    """That of the first rank of the group which has one."""
    if dist.get_world_size(group) == 1:
        return text
    try:
        any_text = torch.tensor([float(bool(text))])
        dist.all_reduce(any_text, op=dist.ReduceOp.MAX, group=group)
        if not any_text.item():
            return ""
        texts = [""] * dist.get_world_size(group)
        dist.all_gather_object(texts, text, group=group)
    except Exception:
        if not text:
            raise
        return text  # of what came first
    return next(one for one in texts if one)
