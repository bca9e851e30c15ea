#!/usr/bin/env python3
"""What sprat promises of tensors on a device, check by check, on several ranks of one machine.

  tests/gpu/lane.py --device cuda                   all ranks on the first GPU (and on the second, where one is)
  tests/gpu/lane.py --device stand_in [--seeds N]   on the device of tests/gpu/stand_in, whose streams run late by N seeds
  tests/gpu/lane.py --device cuda --only NAME       one check

It starts its ranks by itself, and prints one line a check. The status is 0 if none failed.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import os
import pathlib
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
WORLD = 3
SECONDS = 60  # for one operation
OPERATIONS = ("sum", "max", "min", "product")
ALLREDUCE = 1  # c10d::OpType


class Ranks:
    """This rank, its device, and tensors whose values tell their rank and index."""

    def __init__(self, device: torch.device, seeds: int):
        self.device, self.seeds = device, seeds
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.module = torch.get_device_module(device)
        self.store = dist.distributed_c10d._get_default_store()
        self.stand_in = sys.modules.get("stand_in")

    def values(self, count: int, dtype: torch.dtype = torch.float32, rank: int | None = None) -> torch.Tensor:
        """On the CPU. Small integers: sums over ranks are exact in every type here."""
        rank = self.rank if rank is None else rank
        return ((torch.arange(count) * 7 + rank * 13) % 11 - 5).to(dtype)

    def here(self, count: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> torch.Tensor:
        return self.values(count, dtype).to(device or self.device)

    def total(self, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return sum(self.values(count, dtype, rank) for rank in range(self.size))

    def second(self) -> torch.device | None:
        return torch.device(self.device.type, 1) if self.module.device_count() > 1 else None

    def says(self, key: str) -> None:
        self.store.set(f"lane/{key}/{self.rank}", "")

    def hears(self, key: str, rank: int) -> None:
        self.store.wait([f"lane/{key}/{rank}"], datetime.timedelta(seconds=SECONDS))

    def copies(self) -> int:
        """Bytes of the host's memory that operations have for lists of tensors."""
        from sprat.torch import memory_use

        return memory_use()["used"]

    def host_waits(self) -> int:
        return self.stand_in.native.host_waits() if self.stand_in else 0


def expect(actual: torch.Tensor, wanted: torch.Tensor) -> None:
    actual, wanted = actual.detach().cpu(), wanted.detach().cpu()
    if actual.shape != wanted.shape or actual.dtype != wanted.dtype:
        raise AssertionError(f"{actual.shape} {actual.dtype}, not {wanted.shape} {wanted.dtype}")
    if not torch.equal(actual.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8)):
        different = (actual != wanted).flatten()
        first = different.nonzero()[0].item() if different.any() else 0
        raise AssertionError(f"element {first} is {actual.flatten()[first].item()}, not {wanted.flatten()[first].item()}")


@contextlib.contextmanager
def refused(kind: type, *words: str):
    try:
        yield
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        if missing:
            raise AssertionError(f"{kind.__name__} does not say {missing}: {error}") from error
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def every_collective(tensors: list[torch.Tensor], size: int, rank: int) -> list[torch.Tensor]:
    """Each collective once, one feeding the next, as PyTorch calls them; what each gave."""
    given = []
    for data in tensors:
        op = dist.ReduceOp.SUM
        for name in OPERATIONS:
            each = data.clone()
            dist.all_reduce(each, getattr(dist.ReduceOp, name.upper()))
            given.append(each)
        whole = torch.empty(data.numel() * size, dtype=data.dtype, device=data.device)
        dist.all_gather_into_tensor(whole, data)
        given.append(whole.clone())
        part = torch.empty_like(data)
        dist.reduce_scatter_tensor(part, whole, op)
        given.append(part)
        parts = [torch.empty_like(data) for _ in range(size)]
        dist.all_gather(parts, data)
        given.extend(parts)
        dist.reduce_scatter(part.clone(), list(whole.chunk(size)))
        sent, got = torch.cat(parts), torch.empty_like(whole)
        dist.all_to_all_single(got, sent)
        given.append(got)
        splits = [(rank + other) % 3 for other in range(size)]
        rows = torch.empty(sum(splits), dtype=data.dtype, device=data.device)
        dist.all_to_all_single(rows, data[:sum(splits)].clone(), splits, splits)
        given.append(rows)
        outputs = [torch.empty_like(data) for _ in range(size)]
        dist.all_to_all(outputs, parts)
        given.extend(outputs)
        dist.broadcast(part, size - 1)
        dist.reduce(part, 0)
        given.append(part)
        gathered = [torch.empty_like(data) for _ in range(size)] if rank == 0 else None
        dist.gather(data, gathered, 0)
        given.extend(gathered or [])
        dist.scatter(part, gathered, 0)
        given.append(part.clone())
        # Freed while it is under way, and its memory asked for again at once.
        gone = data.clone()
        work = dist.all_reduce(gone, async_op=True)
        del gone
        given.append(torch.ones_like(data) * 3)
        work.wait()
    return given


def collectives_have_the_cpus_bits(ranks: Ranks) -> None:
    types = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8]
    tensors = [ranks.values(count, dtype) for dtype in types for count in (6, 1000)]
    wanted = every_collective(tensors, ranks.size, ranks.rank)
    held = ranks.copies()
    for seed in range(ranks.seeds):
        if ranks.stand_in:
            ranks.stand_in.native.set_delays(seed + ranks.rank * 1_000_003, 300)
        given = every_collective([tensor.to(ranks.device) for tensor in tensors], ranks.size, ranks.rank)
        for number, (one, other) in enumerate(zip(given, wanted)):
            try:
                expect(one, other)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, tensor {number}: {error}") from None
        if ranks.rank == 0 and (seed + 1) % 50 == 0:  # a thousand take many minutes
            print(f"{seed + 1} seeds had the CPU's bits", flush=True)
    # They go with their operations, which another thread sees to.
    deadline = time.monotonic() + SECONDS
    while ranks.copies() > held and time.monotonic() < deadline:
        time.sleep(0.01)
    if ranks.copies() > held:
        raise AssertionError(f"{ranks.copies() - held} bytes of copies are kept for operations that have ended")


def waiting_blocks_no_thread_of_the_host(ranks: Ranks) -> None:
    """The last rank calls only when the others have come back from wait(), and from what follows."""
    dist.all_reduce(ranks.here(1))  # the first collective makes a communicator, and waits for all
    # Once with nobody late: CUDA loads a kernel, and takes memory, when it is first asked for, and waits for the device meanwhile.
    reduce_twice(ranks, ranks.here(1000))
    ranks.module.synchronize()
    data, late = ranks.here(1000), ranks.size - 1
    before = ranks.host_waits()
    for rank in range(late):
        if ranks.rank == late:
            ranks.hears("waited", rank)
    more = reduce_twice(ranks, data)
    if ranks.host_waits() != before:
        raise AssertionError("the host has waited for the device")
    ranks.says("waited")
    expect(data, ranks.total(1000))
    expect(more, ranks.total(1000) * 2 * ranks.size + 1)


def reduce_twice(ranks: Ranks, data: torch.Tensor) -> torch.Tensor:
    """Sums `data` in place over ranks, and twice that once more; one more than the second sum."""
    dist.all_reduce(data, async_op=True).wait()
    after = data * 2
    future = dist.all_reduce(after, async_op=True).get_future()
    return future.then(lambda done: done.value()[0] + 1).wait() * 1


def the_stream_of_the_tensors_device_waits(ranks: Ranks) -> None:
    """Whatever device is current. The last rank comes late, so what waits in another stream, or not at all, is seen."""
    device, late = ranks.second() or ranks.device, ranks.size - 1
    dist.all_reduce(ranks.here(1, device=device))  # the first collective of a device makes a communicator, and waits for all
    data = ranks.here(1000, device=device)
    stream = ranks.module.Stream(device=device)
    stream.wait_stream(ranks.module.current_stream(device))
    for rank in range(late if ranks.rank == late else 0):
        ranks.hears("doubled", rank)
    with ranks.module.stream(stream):
        ranks.module.set_device(ranks.device)  # to enter the stream has made its device the current one
        work = dist.all_reduce(data, async_op=True)
        work.wait()
        data *= 2
    ranks.says("doubled")
    ranks.module.current_stream(device).wait_stream(stream)
    expect(data, ranks.total(1000) * 2)


def several_devices_of_one_process(ranks: Ranks) -> str:
    device = ranks.second()
    if device is None:
        return "there is one device"
    works, datas = [], []
    for turn in range(6):
        datas.append(ranks.here(1000 + turn, device=device if turn % 2 else ranks.device))
        works.append(dist.all_reduce(datas[-1], async_op=True))
    for work, data in zip(works, datas):
        work.wait()
        expect(data, ranks.total(data.numel()))
    return ""


def inference_mode_and_autograd_are_not_concerned(ranks: Ranks) -> None:
    with torch.inference_mode():
        data = ranks.here(100)
        work = dist.all_reduce(data, async_op=True)
    work.wait()
    expect(data, ranks.total(100))
    weight = ranks.here(100).requires_grad_()
    product = weight * weight
    with torch.no_grad():
        dist.all_reduce(weight)
    product.sum().backward()
    image = ranks.here(2 * 3 * 4 * 5).view(2, 3, 4, 5).to(memory_format=torch.channels_last)
    dist.all_reduce(image)
    expect(weight, ranks.total(100))
    expect(image, ranks.total(120).view(2, 3, 4, 5))
    expect(weight.grad, ranks.total(100) * 2)


def messages_need_only_their_two_ranks(ranks: Ranks) -> None:
    """A group whose first operation is a message, which not all of its ranks take part in."""
    group = dist.new_group(list(range(ranks.size)))
    if ranks.rank < 2:
        data, got = ranks.here(100_000), torch.empty(100_000, device=ranks.device)
        other = 1 - ranks.rank
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, data, other, group),
                                        dist.P2POp(dist.irecv, got, other, group)])
        for work in works:
            work.wait()
        expect(got, ranks.values(100_000, rank=other))
        if ranks.rank == 0:
            dist.send(data, 1, group=group, tag=7)
        else:
            dist.recv(got, 0, group=group, tag=7)
            expect(got, ranks.values(100_000, rank=0))


def a_barrier_does_not_wait_for_receives(ranks: Ranks) -> None:
    got = torch.empty(10, device=ranks.device)
    work = dist.irecv(got, 1) if ranks.rank == 0 else None
    dist.barrier()
    if ranks.rank == 1:
        dist.send(ranks.here(10), 0)
    if work is not None:
        work.wait()
        expect(got, ranks.values(10, rank=1))


def a_receive_from_anybody_says_from_whom(ranks: Ranks) -> None:
    if ranks.rank == 0:
        got = torch.empty(10, device=ranks.device)
        sources = []
        for _ in range(ranks.size - 1):
            sources.append(dist.recv(got))
            expect(got, ranks.values(10, rank=sources[-1]))
        if sorted(sources) != list(range(1, ranks.size)):
            raise AssertionError(f"from {sources}")
    else:
        dist.send(ranks.here(10), 0)


def works_say_what_they_are(ranks: Ranks) -> None:
    data = ranks.here(10)
    with torch.profiler.profile() as profile:
        work = dist.all_reduce(data, async_op=True)
        work.wait()
        ranks.module.synchronize()
        work.get_future_result().wait()
    names = {event.name for event in profile.events()}
    if "sprat:all_reduce" not in names:  # the Work's own; whatever the backend is called for is "record_param_comms" as well
        raise AssertionError(f"the profiler saw {sorted(names)}")
    if work._get_op_type() != ALLREDUCE:
        raise AssertionError(f"the operation's type is {work._get_op_type()}, not {ALLREDUCE}")
    expect(work.result()[0], ranks.total(10))
    outcome = work.get_future_result().wait()
    if outcome != 0 or not work.is_completed() or not work.is_success():
        raise AssertionError(f"result {outcome}, completed {work.is_completed()}")


def tensors_of_two_devices_are_refused(ranks: Ranks) -> None:
    on_device, on_host = ranks.here(6), ranks.values(6 * ranks.size)
    with refused(ValueError, "cpu", "same device"):
        dist.all_gather_into_tensor(on_host, on_device)
    with refused(ValueError, "contiguous"):
        dist.all_reduce(ranks.here(36).view(6, 6).t())


def coalesced_tensors_may_have_any_types(ranks: Ranks) -> None:
    tensors = [ranks.here(3, torch.uint8), ranks.here(5, torch.float64), ranks.here(1, torch.bfloat16), ranks.here(7)]
    with dist._coalescing_manager(device=ranks.device, async_ops=True) as coalesced:
        for tensor in tensors:
            dist.all_reduce(tensor)
    coalesced.wait()
    for tensor in tensors:
        expect(tensor, ranks.total(tensor.numel(), tensor.dtype))
    group = dist.group.WORLD
    mixed = [ranks.here(3, torch.uint8), ranks.here(5, torch.float64)]
    outputs = [torch.empty(tensor.numel() * ranks.size, dtype=tensor.dtype, device=ranks.device) for tensor in mixed]
    group.allgather_into_tensor_coalesced(outputs, mixed).wait()
    for output, tensor in zip(outputs, mixed):
        expect(output, torch.cat([ranks.values(tensor.numel(), tensor.dtype, rank) for rank in range(ranks.size)]))


def works_that_were_waited_for_leave_c10ds_registry(ranks: Ranks) -> None:
    """Where collectives in flight may be inputs of graphs, c10d keeps the Work of each call until it is waited for, failed ones too."""
    from torch.distributed._functional_collectives import allow_inflight_collective_as_graph_input_ctx

    registered = torch._C._distributed_c10d._get_work_registry_size
    group, second, before = dist.new_group(list(range(ranks.size))), ranks.second(), registered()
    tensors = [ranks.here(10) for _ in range(4)]

    def begun(one: torch.Tensor, other: torch.Tensor) -> list[dist.Work]:
        """A collective's Work, and that of a batch on two devices, which nobody but c10d's callers registers."""
        with allow_inflight_collective_as_graph_input_ctx():
            works = [dist.all_reduce(one, group=group, async_op=True)]
        if ranks.stand_in and second:
            group._start_coalescing(ranks.device)
            for tensor in (other, other.to(second)):
                group.allreduce([tensor])
            works.append(group._end_coalescing(ranks.device))
            ranks.stand_in.native.register_work(other, works[1])
        if registered() != before + len(works):
            raise AssertionError(f"{registered() - before} works are registered, not {len(works)}")
        return works

    def left(how: str) -> None:
        if registered() != before:
            raise AssertionError(f"{registered() - before} works that {how} stay")

    for work in begun(*tensors[:2]):
        with allow_inflight_collective_as_graph_input_ctx():
            work.wait()
    left("ended well")
    late = ranks.size - 1
    for rank in range(late if ranks.rank == late else 0):
        ranks.hears("begun", rank)
    if ranks.rank == late:
        group._get_backend(ranks.device).abort()
        return
    works = begun(*tensors[2:])
    ranks.says("begun")
    for work in works:
        with allow_inflight_collective_as_graph_input_ctx(), refused(RuntimeError, "aborted"):
            work.wait(datetime.timedelta(seconds=SECONDS))
    left("failed")


def a_group_may_be_left_while_operations_go_on(ranks: Ranks) -> None:
    group = dist.new_group(list(range(ranks.size)))
    data = ranks.here(200_000)
    work = dist.all_reduce(data, group=group, async_op=True)
    dist.destroy_process_group(group)
    del work, group
    gc.collect()
    ranks.module.synchronize()
    expect(data, ranks.total(200_000))


def a_capture_is_refused_by_a_sentence(ranks: Ranks) -> None:
    data = ranks.here(10)
    dist.all_reduce(data)
    ranks.module.synchronize()
    if ranks.stand_in:
        ranks.stand_in.native.set_capturing(True)
        try:
            with refused(ValueError, "graph", "outside the capture"):
                dist.all_reduce(data)
        finally:
            ranks.stand_in.native.set_capturing(False)
    else:
        with refused(ValueError, "graph", "outside the capture"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            dist.all_reduce(data)
    data = ranks.here(10)
    dist.all_reduce(data)
    expect(data, ranks.total(10))


def many_streams_wait_at_once(ranks: Ranks) -> None:
    """More than the 8 that a GPU keeps apart by itself, each waiting for its own operation before others have called it."""
    streams = [ranks.module.Stream() for _ in range(12)]
    datas = [ranks.here(2000 + number) for number in range(len(streams))]
    ranks.module.synchronize()
    if ranks.rank == ranks.size - 1:
        ranks.hears("queued", 0)
    for stream, data in zip(streams, datas):
        with ranks.module.stream(stream):
            dist.all_reduce(data, async_op=True).wait()
            data *= 2
    ranks.says("queued")
    ranks.module.synchronize()
    for data in datas:
        expect(data, ranks.total(data.numel()) * 2)


def groups_may_be_used_in_any_order(ranks: Ranks) -> None:
    """Two groups on two streams, called in opposite orders by the ranks."""
    groups = [dist.new_group(list(range(ranks.size))) for _ in range(2)]
    for group in groups:
        dist.all_reduce(ranks.here(1), group=group)  # its communicator, made in one order
    streams = [ranks.module.Stream() for _ in groups]
    datas = [ranks.here(50_000) for _ in groups]
    ranks.module.synchronize()
    for turn in (0, 1) if ranks.rank % 2 else (1, 0):
        with ranks.module.stream(streams[turn]):
            dist.all_reduce(datas[turn], group=groups[turn], async_op=True).wait()
            datas[turn] *= 2
    ranks.module.synchronize()
    for data in datas:
        expect(data, ranks.total(50_000) * 2)


def more_is_under_way_than_a_lane_has_memory_for(ranks: Ranks) -> None:
    count = 3 << 20
    datas = [ranks.here(count) for _ in range(6)]
    works = [dist.all_reduce(data, async_op=True) for data in datas]
    wanted = ranks.total(count)
    for work, data in zip(works, datas):
        work.wait()
        expect(data, wanted)


def build(device: torch.device) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)]).to(device)


def losses_of(model: nn.Module, batches: torch.Tensor) -> list[torch.Tensor]:
    optimizer, out = torch.optim.SGD(model.parameters(), lr=0.1), []
    for batch in batches:
        loss = (model(batch) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        out.append(loss.detach())
    return out


def check_training(ranks: Ranks, prepared: Callable[[nn.Module], nn.Module]) -> None:
    """Each step has the loss of one process, to float32's accuracy."""
    torch.manual_seed(1)
    whole = torch.randn(4, 8 * ranks.size, 64)
    alone = losses_of(build(torch.device("cpu")), whole)
    mine = losses_of(prepared(build(ranks.device)), torch.stack([batch.chunk(ranks.size)[ranks.rank] for batch in whole]).to(ranks.device))
    for step, (loss, wanted) in enumerate(zip(mine, alone)):
        dist.all_reduce(loss)
        # Sums of some thousand float32 terms of like size, added in another order, once more each step.
        if abs(loss.item() / ranks.size - wanted.item()) > 1e-5 * (step + 1) * wanted.item():
            raise AssertionError(f"step {step}: loss {loss.item() / ranks.size}, of one process {wanted.item()}")


def ddp_trains_as_one_process(ranks: Ranks) -> None:
    check_training(ranks, lambda model: nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02))


def sharded(ranks: Ranks, model: nn.Module, replicas: int = 1) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from sprat.torch import overlap

    shape = (replicas, ranks.size // replicas) if replicas > 1 else (ranks.size,)
    mesh = init_device_mesh(ranks.device.type, shape, mesh_dim_names=("replicas", "shards")[-len(shape):])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    overlap(model)  # FSDP2 does it by itself on a device
    return model


def fsdp2_trains_as_one_process(ranks: Ranks) -> None:
    check_training(ranks, lambda model: sharded(ranks, model))


def hsdp_trains_as_one_process(ranks: Ranks) -> str:
    if ranks.size % 2:
        return "needs an even number of ranks"
    check_training(ranks, lambda model: sharded(ranks, model, replicas=2))
    return ""


def fsdp2s_gathers_overlap_with_computing(ranks: Ranks) -> str:
    """By the stand-in's trace: Sprat's copies run while an operator does.

    In each step's backward FSDP2 gathers all layers but the last one ahead, beside the backward of the layer before.
    """
    if not ranks.stand_in:
        return "needs the stand-in's trace"
    native = ranks.stand_in.native
    model = sharded(ranks, build(ranks.device))
    batches = torch.ones(2, 8, 64).to(ranks.device)
    losses_of(model, batches)
    ranks.module.synchronize()
    native.set_operator_time(3000)
    native.start_trace()
    losses_of(model, batches)
    ranks.module.synchronize()
    trace = native.take_trace()
    native.set_operator_time(0)
    operators = [(began, ended) for name, _, _, began, ended in trace if name.startswith("aten::")]
    copies = [(began, ended) for name, _, _, began, ended in trace if name == "sprat copy"]
    beside = sum(any(begin < ended and began < end for begin, end in operators) for began, ended in copies)
    if beside < len(batches) * (len(model) - 1):
        raise AssertionError(f"{beside} of {len(copies)} copies ran beside one of {len(operators)} operators")
    return ""


def a_device_may_be_bound_and_groups_left_out_of(ranks: Ranks) -> None:
    """init_process_group(device_id=...) and a group of some ranks: PyTorch tells the others to split too."""
    dist.destroy_process_group()
    dist.init_process_group("sprat", device_id=ranks.device, store=dist.PrefixStore("bound", ranks.store), rank=ranks.rank,
                            world_size=ranks.size, timeout=datetime.timedelta(seconds=SECONDS))
    group = dist.new_group([0, 1])
    if ranks.rank < 2:
        data = ranks.here(10)
        dist.all_reduce(data, group=group)
        expect(data, ranks.values(10, rank=0) + ranks.values(10, rank=1))
    data = ranks.here(10)
    dist.all_reduce(data)
    expect(data, ranks.total(10))


def an_error_of_the_device_is_told_to_all(ranks: Ranks) -> str:
    """And the process goes on. Comes last: the group is gone then."""
    if not ranks.stand_in:
        return "needs the stand-in's faults"
    data = ranks.here(10)
    dist.all_reduce(data)
    ranks.module.synchronize()
    if ranks.rank == 0:
        ranks.stand_in.native.fail_copies(True)
    work = dist.all_reduce(data, async_op=True)
    with refused(RuntimeError):
        work.wait(datetime.timedelta(seconds=SECONDS))
    # The failed stream stays failed, as on a GPU; the process, and the CPU's tensors, go on.
    expect(torch.ones(3) + 1, torch.full((3,), 2.0))
    return ""


CHECKS: tuple[Callable[[Ranks], str | None], ...] = (
    collectives_have_the_cpus_bits, waiting_blocks_no_thread_of_the_host, the_stream_of_the_tensors_device_waits,
    several_devices_of_one_process, inference_mode_and_autograd_are_not_concerned, messages_need_only_their_two_ranks,
    a_barrier_does_not_wait_for_receives, a_receive_from_anybody_says_from_whom, works_say_what_they_are,
    tensors_of_two_devices_are_refused, coalesced_tensors_may_have_any_types, works_that_were_waited_for_leave_c10ds_registry,
    a_group_may_be_left_while_operations_go_on,
    a_capture_is_refused_by_a_sentence, many_streams_wait_at_once, groups_may_be_used_in_any_order,
    more_is_under_way_than_a_lane_has_memory_for, ddp_trains_as_one_process, fsdp2_trains_as_one_process,
    hsdp_trains_as_one_process, fsdp2s_gathers_overlap_with_computing, a_device_may_be_bound_and_groups_left_out_of, an_error_of_the_device_is_told_to_all,
)


def device_of(kind: str) -> torch.device:
    if kind == "stand_in":
        sys.path.insert(0, str(HERE))
        import stand_in

        from sprat.torch import _native

        _native.add_device_kind(stand_in.NAME, stand_in.native.sprat_device_kind())
        kind = stand_in.NAME
    return torch.device(kind, 0)


def run_rank(rank: int, given: argparse.Namespace, size: int, port: int, folder: str) -> None:
    """Writes what each check came to: an empty text for success."""
    import sprat.torch  # noqa: F401  (registers the backend)

    torch.set_num_threads(1)
    device = device_of(given.device)
    torch.get_device_module(device).set_device(device)
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0)
    dist.init_process_group("sprat", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=SECONDS))
    ranks, outcomes = Ranks(device, given.seeds), {}
    for check in chosen(given):
        begin = time.monotonic()
        try:
            outcome = {"left_out": check(ranks) or ""}
        except Exception:
            outcome = {"error": traceback.format_exc()}
        outcomes[check.__name__] = outcome | {"seconds": time.monotonic() - begin}
        (pathlib.Path(folder) / f"{rank}.json").write_text(json.dumps(outcomes))
    with contextlib.suppress(Exception):
        dist.destroy_process_group()
    os._exit(0)  # a device that failed is not to be asked any more


def chosen(given: argparse.Namespace) -> list[Callable[[Ranks], str | None]]:
    return [check for check in CHECKS if any(word in check.__name__ for word in given.only.split(","))]


def run_all(given: argparse.Namespace, size: int) -> dict[str, list[dict]]:
    """What each check came to, rank by rank; a rank that ended early has none."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        ranks = torch.multiprocessing.start_processes(run_rank, (given, size, port, folder), size, join=False, start_method="spawn")
        deadline = time.monotonic() + given.seconds
        with contextlib.suppress(Exception):
            while time.monotonic() < deadline and not ranks.join(timeout=1):
                pass
        for process in ranks.processes:
            process.kill()
        files = [pathlib.Path(folder) / f"{rank}.json" for rank in range(size)]
        done = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    return {check.__name__: [of_rank.get(check.__name__, {"error": "the rank did not come to its end"}) for of_rank in done]
            for check in chosen(given)}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", choices=["cuda", "stand_in"], default="cuda")
    options.add_argument("--ranks", type=int, default=WORLD, help="3 or more")
    options.add_argument("--seeds", type=int, default=2, help="of delays, for the check of all collectives")
    options.add_argument("--only", default="", help="checks whose names have one of these in them, separated by commas")
    options.add_argument("--seconds", type=float, default=240, help="for all checks together")
    given = options.parse_args()
    device_of("stand_in") if given.device == "stand_in" else None  # built once, before the ranks ask for it
    failed = 0
    for name, outcomes in run_all(given, given.ranks).items():
        errors = [(rank, outcome["error"]) for rank, outcome in enumerate(outcomes) if "error" in outcome]
        left_out = next((outcome["left_out"] for outcome in outcomes if outcome.get("left_out")), "")
        took = max(outcome.get("seconds", 0) for outcome in outcomes)
        print(f"{'FAILED' if errors else 'left out' if left_out else 'ok':8} {took:6.1f} s  {name.replace('_', ' ')} {left_out}")
        for rank, error in errors:
            print(f"rank {rank}: {error}")
        failed += bool(errors)
    print(f"{failed} of {len(chosen(given))} checks failed on {given.ranks} ranks of {given.device}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
