"""Messages between two ranks, batched, tagged, from anybody, and of objects."""

from __future__ import annotations

import torch
import torch.distributed as dist

from cell import Theme
from cells.reference import same_bits

CELLS = Theme("Messages and objects")


def _of(rank: int, count: int = 100) -> torch.Tensor:
    return torch.arange(float(count)) + 1000 * rank


@CELLS.cell("isend, irecv: everybody with everybody")
def everybody(rank: int, size: int) -> None:
    received = {other: torch.empty(100) for other in range(size) if other != rank}
    works = [dist.irecv(tensor, other) for other, tensor in received.items()]
    works += [dist.isend(_of(rank), other) for other in received]
    for work in works:
        work.wait()
    for other, tensor in received.items():
        same_bits(tensor, _of(other), f"from {other}")


@CELLS.cell("tags: received in another order than sent")
def tags(rank: int, size: int) -> None:
    if rank == 0:
        works = [dist.isend(_of(tag), 1, tag=tag) for tag in range(5)]
        for work in works:
            work.wait()
    elif rank == 1:
        for tag in (3, 0, 4, 2, 1):
            tensor = torch.empty(100)
            dist.recv(tensor, 0, tag=tag)
            same_bits(tensor, _of(tag), f"tag {tag}")
    dist.barrier()


@CELLS.cell("recv from any source, and who it was")
def any_source(rank: int, size: int) -> None:
    if rank == 0:
        senders = []
        for _ in range(size - 1):
            tensor = torch.empty(100)
            senders.append(dist.recv(tensor))
            same_bits(tensor, _of(senders[-1]), f"from {senders[-1]}")
        assert sorted(senders) == list(range(1, size)), f"senders are {senders}"
    else:
        dist.send(_of(rank), 0)
    dist.barrier()


@CELLS.cell("large messages both ways at once")
def large(rank: int, size: int) -> None:
    received = torch.empty(1 << 20)
    work = dist.isend(_of(rank, 1 << 20), (rank + 1) % size)
    dist.recv(received, (rank - 1) % size)
    work.wait()
    same_bits(received, _of((rank - 1) % size, 1 << 20), "message")


@CELLS.cell("batch_isend_irecv, several to the same peer")
def batch(rank: int, size: int) -> None:
    right, left = (rank + 1) % size, (rank - 1) % size
    received = [torch.empty(10 + n) for n in range(4)]
    operations = [dist.P2POp(dist.isend, _of(rank + n, 10 + n), right) for n in range(4)]
    operations += [dist.P2POp(dist.irecv, tensor, left) for tensor in received]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for n, tensor in enumerate(received):
        same_bits(tensor, _of(left + n, 10 + n), f"message {n}")


@CELLS.cell("messages in a group, by its ranks and by global ranks", sizes=(4,))
def in_a_group(rank: int, size: int) -> None:
    group = dist.new_group([1, 3])
    if rank in (1, 3):
        peer = 4 - rank
        received = torch.empty(100)
        work = dist.isend(_of(rank), peer, group=group)
        dist.recv(received, group_src=dist.get_group_rank(group, peer), group=group)
        work.wait()
        same_bits(received, _of(peer), "message")


@CELLS.cell("all_gather_object, gather_object, broadcast_object_list, scatter_object_list")
def objects(rank: int, size: int) -> None:
    mine = {"rank": rank, "text": "x" * (1000 * rank), "tensor": torch.full((3,), rank)}
    gathered: list = [None] * size
    dist.all_gather_object(gathered, mine)
    assert [len(item["text"]) for item in gathered] == [1000 * r for r in range(size)], gathered
    last: list | None = [None] * size if rank == size - 1 else None
    dist.gather_object(mine, last, size - 1)
    assert last is None or [item["rank"] for item in last] == list(range(size)), last
    told = [mine, rank] if rank == 1 else [None, None]
    dist.broadcast_object_list(told, 1)
    assert told[0]["rank"] == 1 and told[1] == 1, told
    given: list = [None]
    dist.scatter_object_list(given, [f"for {r}" for r in range(size)] if rank == 0 else None, 0)
    assert given == [f"for {rank}"], given


@CELLS.cell("send_object_list, recv_object_list")
def object_messages(rank: int, size: int) -> None:
    if rank == 0:
        dist.send_object_list([{"a": 1}, "text", list(range(1000))], 1)
    elif rank == 1:
        received: list = [None, None, None]
        assert dist.recv_object_list(received, 0) == 0
        assert received == [{"a": 1}, "text", list(range(1000))], received
    dist.barrier()
