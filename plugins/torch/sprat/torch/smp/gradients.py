"""Gradients of one step: added by micro-batch in rising order, then over data parallel ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn

from .comm_hooks import Bucket, HookedMeans
from .server.tasks import current_microbatch
from .shards.parameters import ParameterShards


class Gradients:
    """Takes each contribution as autograd makes it; joins them in an order of their own.

    Backwards of micro-batches end in any order, and sums of floats depend on theirs. So what
    micro-batch j adds waits until all before it are complete.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]):
        self._all = list(parameters)
        self._hooked: set[int] = set()
        self._take_up()
        self._begun = False
        # Whether a tensor lies in memory that others write to, as that of a message.
        self.is_lent: Callable[[torch.Tensor], bool] = lambda tensor: False
        self.hook: HookedMeans | None = None  # else the mean by all-reduce
        self.shards: ParameterShards | None = None  # takes gradients instead
        self._kept_local: dict[int, torch.Tensor] = {}  # of steps that were not summed over ranks

    def begin(self) -> None:
        """At a step's start: what stands in .grad is put aside."""
        self._take_up()
        self._before = {id(one): one.grad for one in self.parameters}
        for one in self.parameters:
            one.grad = None
        self._slots: dict[int, dict[int, torch.Tensor]] = {}
        self._sums: dict[int, torch.Tensor] = {}
        self._next = 0
        if self.shards is not None:
            self.shards.begin()
        self._finished: set[int] = set()
        self._begun = True

    def _take_up(self) -> None:
        """Those that need gradients now: a program may freeze parameters, and free them again."""
        self.parameters = [one for one in self._all if one.requires_grad]
        for one in self.parameters:
            if id(one) not in self._hooked:
                self._hooked.add(id(one))
                one.register_post_accumulate_grad_hook(self._take)

    def finish(self, microbatch: int) -> None:
        """Nothing more comes of this micro-batch."""
        self._finished.add(microbatch)
        while self._next in self._finished:
            for key, gradient in self._slots.pop(self._next, {}).items():
                if key in self._sums:
                    self._sums[key] += gradient
                else:
                    self._sums[key] = gradient
            self._next += 1

    def keep(self, divisor: int) -> None:
        """Ends a step whose gradients wait for those of the next; .grad is what it was."""
        self._collect()
        self._divide(divisor)
        for key, gained in self._sums.items():
            earlier = self._kept_local.get(key)
            self._kept_local[key] = gained if earlier is None else earlier + gained
        self.forget()

    def add_up(self, divisor: int, group: dist.ProcessGroup, bucket_bytes: int) -> None:
        """Divides by `divisor`, takes the mean over the group.

        With what keep() has kept, which is local to each rank until now. Until give() the step can be forgotten.
        """
        self._collect()
        self._divide(divisor)
        for key, earlier in self._kept_local.items():
            gained = self._sums.get(key)
            self._sums[key] = earlier.clone() if gained is None else earlier + gained
        if self.shards is not None:
            self.shards.take_gradients(self._sums)
        elif dist.get_world_size(group) > 1:
            self._mean_over(group, bucket_bytes)

    def give(self) -> None:
        """Ends a step: what add_up() has is added to what was put aside."""
        for one in self.parameters:
            before, gained = self._before[id(one)], self._sums.get(id(one))
            one.grad = gained if before is None else before if gained is None else before + gained
        self._begun = False
        self._kept_local, self._before, self._sums = {}, {}, {}

    def forget(self) -> None:
        """Of a step that failed, or ends without them: .grad is what it was."""
        if self._begun:
            for one in self.parameters:
                one.grad = self._before[id(one)]
            if self.shards is not None:
                self.shards.forget()
            self._begun = False

    def _collect(self) -> None:
        if self.shards is not None:
            self._sums |= self.shards.collected()

    def _divide(self, divisor: int) -> None:
        if divisor > 1:
            for gradient in self._sums.values():
                gradient /= divisor

    def taken(self, parameter: nn.Parameter, microbatch: int) -> torch.Tensor | None:
        """What the micro-batch has given to it so far, which is the caller's from here on."""
        return self._slots.get(microbatch, {}).pop(id(parameter), None)

    def _take(self, parameter: nn.Parameter) -> None:
        microbatch = current_microbatch()
        if not self._begun or microbatch < 0:
            return
        slot = self._slots.setdefault(microbatch, {})
        gradient, parameter.grad = parameter.grad, None
        if self.is_lent(gradient):
            gradient = gradient.clone()
        if id(parameter) in slot:
            slot[id(parameter)] = slot[id(parameter)] + gradient
        else:
            slot[id(parameter)] = gradient

    def shadow(self, group: dist.ProcessGroup, bucket_bytes: int) -> None:
        """Takes part in the sum of other ranks' gradients with zeros, and keeps nothing of it."""
        self._sums = {}
        if self.shards is not None:
            self.shards.take_gradients(self._sums)
        else:
            self._mean_over(group, bucket_bytes)
        self._sums = {}

    def _mean_over(self, group: dist.ProcessGroup, bucket_bytes: int) -> None:
        """All ranks sum the same buckets in the same order, also of parameters they did not use."""
        members = _buckets(self.parameters, bucket_bytes)
        parts = [[self._sums.setdefault(id(one), torch.zeros_like(one)) for one in bucket] for bucket in members]
        filled = (Bucket(index, torch.cat([one.reshape(-1) for one in parts[index]]), bucket,
                         index + 1 == len(members)) for index, bucket in enumerate(members))
        means = _means(filled, group) if self.hook is None else self.hook.of(filled)
        for bucket, mean in zip(parts, means):
            for part, values in zip(bucket, mean.split([part.numel() for part in bucket])):
                part.copy_(values.view_as(part))


def _means(buckets: Iterable[Bucket], group: dist.ProcessGroup) -> Iterator[torch.Tensor]:
    begun = [(dist.all_reduce(bucket.buffer(), group=group, async_op=True), bucket) for bucket in buckets]
    for work, bucket in begun:
        work.wait()
        yield bucket.buffer().div_(dist.get_world_size(group))


def _buckets(parameters: list[nn.Parameter], most_bytes: int) -> list[list[nn.Parameter]]:
    """In reverse order, as backward makes them; one type a bucket."""
    buckets: list[list[nn.Parameter]] = []
    size = 0
    for one in reversed(parameters):
        own = one.numel() * one.element_size()
        if not buckets or buckets[-1][0].dtype != one.dtype or size + own > most_bytes:
            buckets.append([])
            size = 0
        buckets[-1].append(one)
        size += own
    return buckets
