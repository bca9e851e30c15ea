"""A communication hook for DDP whose gradients travel as a byte each, in blocks with a scale.

Each rank sends every other one its part of the encoded gradients, adds what it gets in float32, and
sends the encoded mean back: about two bytes for each gradient instead of eight. All ranks end with
the same bits, those that the blocks of the mean decode to.
"""

# Without postponed annotations: DDP compares the hook's with its own types.
import concurrent.futures

import torch
import torch.distributed as dist

from sprat.torch import _native
from sprat.torch.local_groups import new_group

#: Numbers that share a scale.
BLOCK = 256


class BlockCompressState:
    """What ``block_compress_hook`` needs: ``model.register_comm_hook(state, block_compress_hook)``.

    ``wire`` is ``"i8"``, ``"f8e4m3"`` or ``"f8e5m2"`` (docs/numerics.md has their errors). With
    ``error_feedback`` what a rank's blocks lose is added to its next gradient, which takes as much
    memory as the gradients, and 1/N of that again on N ranks. It is lost when the state is: a
    checkpoint does not hold it. Of one model, whose gradients are float32 on the CPU. Collective
    over ``process_group``; any backend that has ``all_to_all_single``.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        wire: str = "i8",
        error_feedback: bool = True,
    ) -> None:
        # Refuses a wire that it does not know, before anybody waits.
        _native.encode(wire, torch.empty(0), torch.empty(0, dtype=torch.uint8), None)
        ranks = dist.get_process_group_ranks(process_group or dist.group.WORLD)
        self.wire = wire
        self.error_feedback = error_feedback
        # Buckets become ready in the same order everywhere, but when one rank sends a mean back
        # another may not have begun the next bucket: each kind has an order of its own.
        self.exchanges, self.replies = (new_group(ranks) for _ in range(2))
        self._residuals: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor]] = {}
        self._worker = concurrent.futures.ThreadPoolExecutor(1, "sprat-block-compress")

    def residuals(
        self, bucket: dist.GradBucket, part: int
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Of this rank's gradients, and of the means of its part, that many numbers."""
        if not self.error_feedback:
            return None, None
        # DDP deals parameters anew after the first step, so a bucket is known by what is in it.
        key = tuple(parameter.data_ptr() for parameter in bucket.parameters())
        if key not in self._residuals:
            self._residuals = {
                other: kept for other, kept in self._residuals.items() if not set(other) & set(key)
            }
            self._residuals[key] = (torch.zeros_like(bucket.buffer()), torch.zeros(part))
        return self._residuals[key]


def block_compress_hook(
    state: BlockCompressState, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """The mean of a bucket over the ranks, through blocks."""
    size = state.exchanges.size()
    gradients = bucket.buffer()
    count = gradients.numel()
    block = _native.encoded_bytes(1)
    blocks = _native.encoded_bytes(count) // block
    part_blocks = -(-blocks // size)  # the same for each rank; those behind the end are zeros
    part = part_blocks * BLOCK
    lost, lost_of_means = state.residuals(bucket, part)
    sent = torch.zeros(size * part_blocks * block, dtype=torch.uint8)
    _native.encode(state.wire, gradients, sent[: blocks * block], lost)
    received = torch.empty_like(sent)
    exchange = dist.all_to_all_single(received, sent, group=state.exchanges, async_op=True)

    def reply() -> torch.Tensor:
        exchange.wait()
        mean = torch.empty(part)
        _native.sum_encoded(state.wire, received.view(size, -1), mean)
        mean /= size
        own = torch.empty(part_blocks * block, dtype=torch.uint8)
        _native.encode(state.wire, mean, own, lost_of_means)
        dist.all_gather_into_tensor(sent, own, group=state.replies)
        _native.decode(state.wire, sent[: blocks * block], gradients)
        return gradients

    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    def finish() -> None:
        try:
            future.set_result(reply())
        except Exception as error:  # whatever it is, DDP waits for this future and raises it
            future.set_exception(error)

    state._worker.submit(finish)
    return future
