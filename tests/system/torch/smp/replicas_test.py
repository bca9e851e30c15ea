"""Tests of a copy of the model that fails beside others: all ranks of all copies are told, and at once.

In a step, in a hook of communication, in optimizer.step().

Use: python tests/system/torch/smp/replicas_test.py. Needs torch and sprat.torch.
"""

from __future__ import annotations

import functools
import itertools
import os
import pathlib
import sys
import unittest
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
import torch.distributed as dist
from launch import Ranks
from split_test import BATCH, WORDS, Net, batch, said, start, step_of
from tensor_test import Over, begin_training, words
from torch import nn
from torch.distributed.fsdp import FSDPModule

# Far beyond what a test takes: no wait of these may be ended by it.
TIMEOUT = 300
SECONDS = 240


def breaks(*_: Any) -> None:
    raise KeyError("no such key")


class Failure(NamedTuple):
    """How the second of two replicas fails, ranks 2 and 3."""

    options: dict[str, Any]
    what: str  # words of: first (step), word (that the embedding has not), batch (too short), hook forward, hook backward
    says: str


def two_replicas(failure: Failure, rank: int, size: int) -> tuple[str, float, float]:
    """What the failing step says; the next one's loss, and the norm of its gradients."""
    smp = start(2, 2, **failure.options)
    module = Net(smp.partition, 2).eval()  # without numbers that a failed step draws
    model, train = smp.DistributedModel(module, broadcast_buffers=False), step_of(smp)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.125))
    mine = smp.rdp_rank() == 1
    if "first" not in failure.what:
        train(model, *batch(0))
    ids, targets = batch(1, BATCH - (mine and "batch" in failure.what))
    if mine and failure.what == "word":
        ids[-1, 0] = WORDS + 1
    hooks = []
    if rank == 3 and "hook" in failure.what:
        last = model.module.get_submodule("blocks.3.inner")
        register = last.register_forward_pre_hook if "forward" in failure.what else last.register_full_backward_pre_hook
        hooks.append(register(breaks))
    text = said(lambda: train(model, ids, targets))
    for hook in hooks:
        hook.remove()
    optimizer.zero_grad()
    losses = train(model, *batch(2)).reduce_mean()
    return text, float(losses), float(optimizer.clip_master_grads(1e9))


SHARES = {"sharded_data_parallel_degree": 2}
ROWS = {
    "stages": Failure({"static_mode": True}, "word", r"rank 0 of the pipeline, rank 2 of all: piece 0, module 'embedding', "
                      r"operation \w+ \(aten.embedding.default\), micro-batch 1, forward: IndexError"),
    "stages, shares": Failure({"static_mode": True, **SHARES}, "word", r"rank 2 of all: .*module 'embedding'.*IndexError"),
    "server, of the root": Failure({"static_mode": False}, "word", "rank 0 of the pipeline, rank 2 of all: "
                                   "module 'embedding', micro-batch 1: IndexError"),
    "server, forward": Failure({"static_mode": False}, "hook forward", "rank 1 of the pipeline, rank 3 of all: .*"
                               r"module 'blocks.3', micro-batch \d, forward: KeyError: 'no such key'"),
    "server, backward": Failure({"static_mode": False, **SHARES}, "hook backward", "rank 3 of all: .*"
                                r"module 'blocks.3', micro-batch \d, backward: KeyError: 'no such key'"),
    "a batch that is not whole": Failure({}, "batch", r"argument 'words' of @smp.step has shape \(7, 5\)"),
    "the first batch": Failure({}, "first batch", r"argument 'words' of @smp.step has shape \(7, 5\)"),
    "the first step": Failure({}, "first hook forward", "rank 3 of all: .*module 'blocks.3', .*KeyError: 'no such key'"),
}


def tensor_ranks_of_one_replica(rank: int, size: int) -> tuple[str, str]:
    """Rank 3 alone raises inside of a layer that it shares with rank 2; ranks 0 and 1 are another replica."""
    _, model, train = begin_training(Over(2))
    train(model, words(0))
    own = next(one for one in model.local_modules() if type(one).__name__ == "DistributedLinear")
    hook = own.register_forward_pre_hook(breaks) if rank == 3 else None
    text = said(lambda: train(model, words(0)))
    if hook:
        hook.remove()
    return text, said(lambda: train(model, words(0)))


def blocks_of_the_whole_job(rank: int, size: int) -> tuple[str, str]:
    """All ranks share each block by FSDP2; rank 3 raises before it gathers one."""
    _, model, train = begin_training(Over(1, 1, size, "blocks"))
    train(model, words(0))
    own = next(one for one in model.local_modules() if isinstance(one, FSDPModule))
    hook = own.register_forward_pre_hook(breaks, prepend=True) if rank == 3 else None
    text = said(lambda: train(model, words(0)))
    if hook:
        hook.remove()
    return text, said(lambda: train(model, words(0)))


def allreduces(group: Any, bucket: Any) -> torch.futures.Future:
    """As torch's own hook does."""
    tensor = bucket.buffer().div_(dist.get_world_size(group))
    return dist.all_reduce(tensor, group=group, async_op=True).get_future().then(lambda future: future.value()[0])


def waits(group: Any, bucket: Any) -> torch.futures.Future:
    """Comes back once its collective has ended."""
    future: torch.futures.Future = torch.futures.Future()
    dist.all_reduce(bucket.buffer().div_(dist.get_world_size(group)), group=group)
    future.set_result(bucket.buffer())
    return future


def then_breaks(group: Any, bucket: Any) -> torch.futures.Future:
    return allreduces(group, bucket).then(breaks)


def goes_on_twice(group: Any, bucket: Any) -> torch.futures.Future:
    """As compressions that sum twice; between the two it raises."""
    def second(future: torch.futures.Future) -> torch.Tensor:
        breaks()

    return dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future().then(second)


class Hooked(NamedTuple):
    """A hook of communication, and what it does on rank 3 in the second bucket of one step."""

    hook: Any
    broken: Any
    says: str = "KeyError: 'no such key'"
    passes: int = 1
    group: str = "given"  # or none


HOOKS = {
    "before its collective": Hooked(allreduces, breaks),
    "before its collective, without a group": Hooked(allreduces, breaks, group="none"),
    "while others wait in theirs": Hooked(waits, breaks),
    "behind its collective": Hooked(allreduces, then_breaks, r"KeyError: 'no such key'|no such key"),
    "between two collectives": Hooked(allreduces, goes_on_twice, r"KeyError: 'no such key'|no such key"),
    "without a future": Hooked(allreduces, lambda group, bucket: None, "it returned a NoneType, and not a future"),
    "with too short a mean": Hooked(waits, lambda group, bucket: waits(group, bucket).then(lambda one: one.value()[:1]),
                                    "its future holds 1 elements, the bucket"),
    "in the second pass": Hooked(allreduces, breaks, passes=2),
}


def hooked(name: str, pipeline: int, rank: int, size: int) -> tuple[str, str]:
    """What the failing step says, and how the next one's gradients differ from those of a job that has not failed."""
    row = HOOKS[name]

    def model_with(hook: Any) -> tuple[Any, Any]:
        smp = start(pipeline, 2)
        model = smp.DistributedModel(Net(smp.partition, pipeline).eval(), broadcast_buffers=False, bucket_cap_mb=0.002,
                                     backward_passes_per_step=row.passes)
        if hook is not None:
            model.register_comm_hook(smp.get_rdp_process_group() if row.group == "given" else None, hook)
        return model, step_of(smp)

    broken = []

    def hook(group: Any, bucket: Any) -> torch.futures.Future:
        fails = broken and rank == 3 and bucket.index() == 1
        return (row.broken if fails else row.hook)(group, bucket)

    model, train = model_with(hook)
    for number in range(row.passes):
        train(model, *batch(number))
    before = [one.grad.clone() for one in model.local_parameters()]
    for number in range(row.passes - 1):
        train(model, *batch(2))
    broken.append(True)
    text = said(lambda: train(model, *batch(1)))
    broken.clear()
    if not all(torch.equal(one.grad, other) for one, other in zip(model.local_parameters(), before)):
        return text, "the failed step has changed gradients"
    train(model, *batch(3))
    again, train = model_with(None)
    for number in (*range(row.passes), *[2] * (row.passes - 1), 3):
        train(again, *batch(number))
    wrong = [name for (name, one), other in zip(model.local_named_parameters(), again.local_parameters())
             if not torch.equal(one.grad, other.grad)]
    return text, f"{wrong} differ" if wrong else ""


def gone_behind_a_hook(rank: int, size: int) -> str:
    """What rank 0 says, whose hook has its mean, of a replica that ends before it leaves the step."""
    smp = start(1, 2)
    model = smp.DistributedModel(Net(smp.partition, 1).eval(), broadcast_buffers=False)

    def hook(group: Any, bucket: Any) -> torch.futures.Future:
        future = allreduces(group, bucket)
        future.wait()
        if rank == 1:
            model.gradients.hook._wire.inbox.get()  # rank 0 has left
            os._exit(0)
        return future

    model.register_comm_hook(None, hook)
    return said(lambda: step_of(smp)(model, *batch(0)))


class Updated(NamedTuple):
    """An optimizer whose step raises on rank 3: before it begins, or when it has ended."""

    when: str
    options: dict[str, Any] = {}
    make: Any = functools.partial(torch.optim.SGD, lr=0.125)


def lamb(parameters: Any) -> Any:
    import sprat.torch.smp as smp

    return smp.optimizers.FusedLamb(parameters)


UPDATES = {
    "before": Updated("pre"),
    "after": Updated("post"),
    "before, divided state": Updated("pre", {"shard_optimizer_state": True}),
    "before, shares": Updated("pre", SHARES),
    "before, clips by the norm of all": Updated("pre", make=lamb),
    "before, in half precision": Updated("pre", {"fp16": True}),
}


def numbers_of(model: Any) -> list[torch.Tensor]:
    with model.whole_parameters():
        return [one.detach().clone() for one in model.local_parameters()]


def updated(row: Updated, rank: int, size: int) -> tuple[str, str, float, bool]:
    """What optimizer.step() says where it raises, and the next time; the loss before that, and whether that has changed anything."""
    smp = start(2, 2, **row.options)
    model, train = smp.DistributedModel(Net(smp.partition, 2).eval(), broadcast_buffers=False), step_of(smp)
    optimizer = smp.DistributedOptimizer(row.make(model.parameters()))
    train(model, *batch(0))
    optimizer.step()
    optimizer.zero_grad()
    train(model, *batch(1))
    hook = getattr(optimizer.optimizer, f"register_step_{row.when}_hook")(breaks) if rank == 3 else None
    text = said(optimizer.step)
    if hook:
        hook.remove()
    optimizer.zero_grad()
    loss = train(model, *batch(2)).reduce_mean()
    before = numbers_of(model)
    again = said(optimizer.step)
    return text, again, float(loss), not all(map(torch.equal, before, numbers_of(model)))


class Replicas(unittest.TestCase):
    def test_the_error_of_one_is_raised_on_all_at_once_and_the_next_step_trains(self):
        with Ranks("sprat", 4, timeout=TIMEOUT) as ranks:
            for name, failure in ROWS.items():
                with self.subTest(name):
                    reports = ranks.run(functools.partial(two_replicas, failure), deadline=SECONDS)
                    self.assertEqual([one.error for one in reports], [""] * 4, ranks.tail(40))
                    for text, loss, norm in (one.value for one in reports):
                        self.assertRegex(text, failure.says)
                        self.assertTrue(loss > 0 and norm > 0, (loss, norm))
                    # Replicas have one mean of gradients, and the ranks of one copy one loss.
                    self.assertEqual(len({norm for _, _, norm in (one.value for one in reports)}), 1)
                    self.assertEqual([reports[0].value[1], reports[2].value[1]],
                                     [reports[1].value[1], reports[3].value[1]])

    def test_what_a_hook_of_communication_raises_on_one_is_raised_on_all_and_leaves_no_trace(self):
        with Ranks("sprat", 4, timeout=TIMEOUT) as ranks:
            for (name, row), pipeline in itertools.product(HOOKS.items(), (2, 1)):
                with self.subTest(name, pipeline=pipeline):
                    for report in ranks.run(functools.partial(hooked, name, pipeline), deadline=SECONDS):
                        self.assertEqual(report.error, "", ranks.tail(40))
                        text, wrong = report.value
                        self.assertRegex(text, r"(?s)rank \d of the pipeline, rank 3 of all: RuntimeError: hook of communication "
                                               rf".*hook, bucket 1: .*({row.says}).*; .*: mend the hook, or leave "
                                               "register_comm_hook out")
                        self.assertEqual(wrong, "")

    def test_a_replica_that_is_gone_is_called_by_its_number_of_all(self):
        with Ranks("sprat", 2, timeout=TIMEOUT) as ranks:
            report = ranks.run(gone_behind_a_hook, deadline=SECONDS, grace=60)[0]
            self.assertEqual(report.error, "", ranks.tail(40))
            self.assertRegex(report.value, "nothing came from rank 1 of all in this step, and replicas call the same steps: ")

    def test_what_an_optimizer_raises_on_one_is_raised_on_all_and_the_next_step_trains(self):
        with Ranks("sprat", 4, timeout=TIMEOUT) as ranks:
            for name, row in UPDATES.items():
                with self.subTest(name):
                    for report in ranks.run(functools.partial(updated, row), deadline=SECONDS):
                        self.assertEqual(report.error, "", ranks.tail(40))
                        text, again, loss, changed = report.value
                        self.assertRegex(text, r"rank 1 of the pipeline, rank 3 of all: optimizer.step\(\): "
                                               "KeyError: 'no such key'; .*load the last checkpoint")
                        self.assertEqual(again, "nothing was said")
                        self.assertGreater(loss, 0)
                        self.assertTrue(changed)

    def test_a_group_that_an_error_has_ended_is_told_to_all_replicas(self):
        with Ranks("sprat", 4, timeout=TIMEOUT) as ranks:
            for task in (tensor_ranks_of_one_replica, blocks_of_the_whole_job):
                for report in ranks.run(task, deadline=SECONDS):
                    self.assertEqual(report.error, "", ranks.tail(40))
                    text, next_text = report.value
                    self.assertRegex(text, r"rank 0 of the pipeline, rank 3 of all: module 'layers.0[.\d]*', "
                                           "micro-batch 0: KeyError: 'no such key'")
                    self.assertRegex(next_text, "ended with an earlier step .*rank 3 of all: .*no such key")


if __name__ == "__main__":
    unittest.main()
