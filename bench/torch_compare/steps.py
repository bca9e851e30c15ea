"""One rank of the comparison of FSDP2 steps: over gloo, over Sprat, and over nothing, in turns."""

import json
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed import fake_pg  # noqa: F401  (registers "fake")

import shapes
import ways

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "torch"))
import gpt  # noqa: E402  (the examples' model)

NOTHING = "nothing"  # collectives that return at once: what a step takes without communication
OVERLAP = "sprat, overlap"
# Of the second step's loss, whose parameters a reduction made: f32, summed in another order.
TOLERANCE = 1e-5


class Training:
    """A model sharded over one group, and its optimizer."""

    def __init__(self, shape: shapes.Shape, group: dist.ProcessGroup, overlap: bool):
        torch.manual_seed(1)
        self.shape = shape
        self.model = gpt.GPT(shape.layers, shape.width, shape.heads, shape.context)
        mesh = DeviceMesh.from_group(group, "cpu")
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        if overlap:
            import sprat.torch
            sprat.torch.overlap(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.losses: list[float] = []

    def sample(self) -> float:
        """This rank's seconds of a step that all ranks begin together."""
        generator = torch.Generator().manual_seed(len(self.losses) * 1000 + dist.get_rank())
        lines = torch.randint(gpt.VOCABULARY, (self.shape.sequences, self.shape.context + 1),
                              generator=generator)
        dist.barrier()
        begin = time.perf_counter()
        loss = gpt.loss_of(self.model(lines[:, :-1].contiguous()), lines[:, 1:].contiguous())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        seconds = time.perf_counter() - begin
        self.losses.append(loss.item())
        return seconds


def groups(against: str) -> dict[str, tuple[dist.ProcessGroup, bool]]:
    """By configuration: its group, and whether it overlaps."""
    gloo, other, *_ = ways.join(against)
    found = {ways.GLOO: (gloo.group, False), ways.SPRAT: (other.group, False)}
    if against != ways.GLOO:
        found[OVERLAP] = (other.group, True)
    found[NOTHING] = (dist.new_group(backend="fake"), False)
    return found


def differing(training: dict[str, Training]) -> dict[str, int]:
    """Of the first two losses, how many are not gloo's; the first has to be its very bits."""
    expected = training[ways.GLOO].losses
    return {name: int(one.losses[0] != expected[0])
            + int(abs(one.losses[1] - expected[1]) > TOLERANCE * abs(expected[1]))
            for name, one in training.items() if name != NOTHING}


def measure(name: str, shape: shapes.Shape, against: dict, samples: int) -> dict:
    training = {way: Training(shape, *group) for way, group in against.items()}
    for _ in range(2):  # the first builds what later steps use again
        for one in training.values():
            one.sample()
    wrong = differing(training)
    seconds = ways.alternate({way: one.sample for way, one in training.items()}, samples)
    return {"shape": name, "ranks": dist.get_world_size(), "text": shape.text(),
            "parameters": sum(part.numel() for part in training[NOTHING].model.parameters()),
            "samples_s": seconds, "wrong": wrong,
            "median_s": {way: statistics.median(values) for way, values in seconds.items()}}


def main() -> None:
    options = json.loads(sys.argv[1])
    torch.set_flush_denormal(True)  # what NOTHING computes with is whatever its buffers hold
    against = groups(options["against"])
    for name, shape in options["shapes"].items():
        cell = measure(name, shapes.Shape(**shape), against, options["samples"])
        if dist.get_rank() == 0:
            print(json.dumps(cell), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
