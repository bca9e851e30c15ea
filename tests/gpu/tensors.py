"""Device tensors over sprat: every collective, streams, futures, and FSDP2, with ranks on one GPU.

  torchrun --nproc-per-node 2 tests/gpu/tensors.py --device cuda
  torchrun --nproc-per-node 2 tests/gpu/tensors.py --device cpu      (a rehearsal of the test itself)
"""

from __future__ import annotations

import argparse
import os
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import sprat.torch  # noqa: F401  (registers the backend)

COUNTS = (1, 1000, 1_000_003)


class Ranks:
    """This rank's place, and tensors whose values tell their rank and index."""

    def __init__(self, device: torch.device):
        self.device, self.rank, self.size = device, dist.get_rank(), dist.get_world_size()

    def values(self, count: int, rank: int | None = None) -> torch.Tensor:
        """Small integers: sums over ranks are exact in float32."""
        rank = self.rank if rank is None else rank
        return ((torch.arange(count, device=self.device) * 7 + rank * 13) % 101 - 50).float()

    def total(self, count: int) -> torch.Tensor:
        return sum(self.values(count, rank) for rank in range(self.size))

    def gathered(self, count: int) -> torch.Tensor:
        return torch.cat([self.values(count, rank) for rank in range(self.size)])


def expect(actual: torch.Tensor, wanted: torch.Tensor) -> None:
    if not torch.equal(actual, wanted):
        first = (actual != wanted).flatten().nonzero()[0].item()
        raise AssertionError(f"element {first} is {actual.flatten()[first].item()}, "
                             f"not {wanted.flatten()[first].item()}")


def reductions(ranks: Ranks) -> None:
    for count in COUNTS:
        data = ranks.values(count)
        dist.all_reduce(data)
        expect(data, ranks.total(count))
        whole = ranks.values(count * ranks.size)
        part = torch.empty(count, device=ranks.device)
        dist.reduce_scatter_tensor(part, whole)
        expect(part, ranks.total(count * ranks.size).chunk(ranks.size)[ranks.rank])
        data = ranks.values(count)
        dist.reduce(data, 0)
        expect(data, ranks.total(count) if ranks.rank == 0 else ranks.values(count))


def movements(ranks: Ranks) -> None:
    for count in COUNTS:
        data = ranks.values(count)
        whole = torch.empty(count * ranks.size, device=ranks.device)
        dist.all_gather_into_tensor(whole, data)
        expect(whole, ranks.gathered(count))
        parts = [torch.empty(count, device=ranks.device) for _ in range(ranks.size)]
        dist.all_gather(parts, data)
        expect(torch.cat(parts), ranks.gathered(count))
        dist.broadcast(data, ranks.size - 1)
        expect(data, ranks.values(count, ranks.size - 1))
        sent = ranks.values(count * ranks.size)
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent)
        expect(got, torch.cat([ranks.values(count * ranks.size, rank).chunk(ranks.size)[ranks.rank]
                               for rank in range(ranks.size)]))


def messages(ranks: Ranks) -> None:
    """Around the ring, everybody sending first."""
    after, before = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    for count in COUNTS:
        sent, got = ranks.values(count), torch.empty(count, device=ranks.device)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, after),
                                        dist.P2POp(dist.irecv, got, before)])
        for work in works:
            work.wait()
        expect(got, ranks.values(count, before))


def behind_the_stream(ranks: Ranks) -> None:
    """What is queued before a collective happens before it, and what is queued after, after it."""
    size = 1024
    data = torch.zeros(size, size, device=ranks.device)
    busy = torch.eye(size, device=ranks.device)
    for _ in range(50):
        busy = busy @ busy  # the identity still; takes a while on the device
    data += busy * (ranks.rank + 1)
    work = dist.all_reduce(data, async_op=True)
    work.wait()
    data *= 2
    expect(data, torch.eye(size, device=ranks.device) * ranks.size * (ranks.size + 1))


def many_at_once(ranks: Ranks) -> None:
    datas = [ranks.values(1000 + i) for i in range(50)]
    works = [dist.all_reduce(data, async_op=True) for data in datas]
    for work in reversed(works):
        work.wait()
    for data in datas:
        expect(data, ranks.total(data.numel()))


def futures(ranks: Ranks) -> None:
    data = ranks.values(1000)
    future = dist.all_reduce(data, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    expect(doubled.wait(), ranks.total(1000) * 2)


def host_tensors_beside(ranks: Ranks) -> None:
    """Host and device tensors in one group, in whatever order they come to be ready."""
    for _ in range(20):
        on_device, on_host = ranks.values(1000), ranks.values(1000).cpu()
        work = dist.all_reduce(on_device, async_op=True)
        dist.all_reduce(on_host)
        work.wait()
        expect(on_device, ranks.total(1000))
        expect(on_host, ranks.total(1000).cpu())


def sharded_training(ranks: Ranks) -> None:
    """FSDP2 over all ranks gives each step the loss of one process, to float32's accuracy."""
    def build() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(3)])

    def losses(model: nn.Module, batches: list[torch.Tensor]) -> list[torch.Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        out = []
        for batch in batches:
            loss = (model(batch) - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            out.append(loss.detach())
        return out

    torch.manual_seed(1)
    whole = torch.randn(5, 8 * ranks.size, 64).to(ranks.device)
    alone = losses(build().to(ranks.device), list(whole))
    model = build().to(ranks.device)
    mesh = init_device_mesh(ranks.device.type, (ranks.size,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    mine = losses(model, [batch.chunk(ranks.size)[ranks.rank] for batch in whole])
    for step, (loss, wanted) in enumerate(zip(mine, alone)):
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        # Sums of some thousand float32 terms of like size, added in another order, five times over.
        bound = 1e-5 * (step + 1)
        if abs(loss.item() - wanted.item()) > bound * wanted.item():
            raise AssertionError(f"step {step}: loss {loss.item()}, of one process {wanted.item()}")


CHECKS: list[Callable[[Ranks], None]] = [
    reductions, movements, messages, behind_the_stream, many_at_once, futures,
    host_tensors_beside, sharded_training,
]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options.add_argument("--backend", default="sprat", help="of torch.distributed; nccl with a drop-in in its place, say")
    options.add_argument("--spread", action="store_true", help="each rank of the host has a device of its own, not all the first")
    given = options.parse_args()
    device = torch.device(given.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) if given.spread else 0)
        torch.cuda.set_device(device)
    dist.init_process_group(given.backend)
    ranks, failed = Ranks(device), 0
    for check in CHECKS:
        if given.backend == "nccl" and check is host_tensors_beside:
            continue  # NCCL has none
        try:
            check(ranks)
            outcome = "passed"
        except Exception:
            failed += 1
            outcome = "FAILED\n" + traceback.format_exc()
        if ranks.rank == 0 or outcome != "passed":
            print(f"rank {ranks.rank}: {check.__name__} {outcome}", flush=True)
    dist.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
