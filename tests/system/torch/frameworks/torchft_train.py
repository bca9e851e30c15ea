"""torchft: two replicas of a model, each of which goes on when the other is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torchft
from sprat.torch.store_group import store_group
from torchft.process_group import ProcessGroupWrapper

import exact
import report

REPLICAS = 2


class ProcessGroupSprat(ProcessGroupWrapper):
    """Sprat's group of the replicas that are there; torchft makes another when that changes."""

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        return store_group(store, rank, world_size, self._timeout)

    def getBackendName(self) -> str:
        return "sprat"


def train(replica: int, lighthouse: str, meeting: int) -> None:
    model = exact.model()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = ProcessGroupSprat(timeout=timedelta(seconds=30))
    manager = torchft.Manager(pg=group, load_state_dict=model.load_state_dict, state_dict=model.state_dict,
                              min_replica_size=1, use_async_quorum=False, init_sync=False, rank=0, world_size=1,
                              store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=lighthouse,
                              replica_id=f"replica_{replica}")
    parallel = torchft.DistributedDataParallel(manager, model)
    optimizer = torchft.Optimizer(manager, torch.optim.SGD(model.parameters(), lr=exact.RATE))
    # A replica that came before the other would begin alone.
    dist.TCPStore("127.0.0.1", meeting, world_size=REPLICAS + 1, is_master=False)
    inputs, targets = exact.rows()
    share = exact.ROWS // REPLICAS
    losses = []
    while manager.current_step() < exact.STEPS:
        step = manager.current_step()
        begin = exact.ROWS * step + share * replica
        optimizer.zero_grad()  # torchft's replicas agree here on who is there.
        report.begin(step)
        loss = torch.nn.functional.mse_loss(parallel(inputs[begin:begin + share]), targets[begin:begin + share])
        loss.backward()
        total = loss.detach().clone()
        manager.allreduce(total).wait()
        optimizer.step()
        if manager.current_step() > step:
            losses.append(total)
    report.finish(losses, model.parameters(), backend=group.getBackendName())
    manager.shutdown(wait=False)


def main() -> int:
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=30_000, heartbeat_timeout_ms=1000)
    meeting = dist.TCPStore("127.0.0.1", 0, world_size=REPLICAS + 1, is_master=True, wait_for_workers=False)
    replicas = [subprocess.Popen([sys.executable, __file__, str(replica), lighthouse.address(), str(meeting.port)],
                                 env=os.environ | {"REPLICA": str(replica)}) for replica in range(REPLICAS)]
    statuses = [replica.wait() for replica in replicas]
    lighthouse.shutdown()
    return statuses[0]


if __name__ == "__main__":
    if len(sys.argv) == 4:
        train(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
