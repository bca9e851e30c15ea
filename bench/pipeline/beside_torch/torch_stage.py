"""One rank of PyTorch's side: a stage of the GPT under torch.distributed.pipelining on gloo, a few steps at a time."""

import json
import math
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "fsdp"))
import gpt_numpy  # noqa: E402
import gpt_torch  # noqa: E402  (the same model under FSDP2)

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


class Stage(nn.Module):
    """The blocks `first` to `end` of gpt_torch.Gpt, what is before them if they are first and behind if last."""

    def __init__(self, layers: int, width: int, heads: int, context: int, first: int, end: int):
        super().__init__()
        self.is_first, self.is_last = first == 0, end == layers
        self.wte = nn.Embedding(gpt_numpy.VOCABULARY, width)  # each end has a copy
        if self.is_first:
            self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleDict({str(block): gpt_torch.Block(width, heads) for block in range(first, end)})
        if self.is_last:
            self.ln_f = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_first:
            x = self.wte(x) + self.wpe.weight
        for block in self.h.values():
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight) if self.is_last else x


def stage_of(config: dict) -> Stage:
    """This rank's, of two."""
    rank, layers = dist.get_rank(), config["model"]["layers"]
    cut = int(config["parallel"]["partition"][1].removeprefix("h."))
    stage = Stage(**config["model"], first=[0, cut][rank], end=[cut, layers][rank])
    gpt_torch.initialise(stage, config)
    return stage


class Training:
    """A stage, its schedule, its optimizer, and its place in the text."""

    def __init__(self, config: dict):
        self.batches, self.steps = gpt_numpy.Batches(config), 0
        self.clip_norm = config["train"]["clip_norm"]
        tokens = config["train"]["batch"] * config["model"]["context"]
        self.stage = stage_of(config)
        self.optimizer = gpt_torch.adamw(self.stage, config)

        def share_of_mean(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            """Of the whole batch's loss, so that no gradient need be scaled afterwards."""
            total = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
            return total / tokens

        self.schedule = SCHEDULES[config["parallel"]["pipeline"]](
            PipelineStage(self.stage, dist.get_rank(), dist.get_world_size(), torch.device("cpu")),
            config["parallel"]["microbatches"], loss_fn=share_of_mean, scale_grads=False)

    def next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and targets of the next step."""
        lines = torch.from_numpy(self.batches.of(self.steps, 0, 1).astype("int64"))
        self.steps += 1
        return lines[:, :-1].contiguous(), lines[:, 1:].contiguous()

    def passes(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        """Leaves the whole batch's gradient; returns its loss, 0 where the last stage is not."""
        losses: list[torch.Tensor] = []
        if self.stage.is_first:
            self.schedule.step(tokens, return_outputs=False)
        else:
            self.schedule.step(target=targets, losses=losses, return_outputs=False)
        dist.all_reduce(self.stage.wte.weight.grad)
        return float(sum(loss.detach() for loss in losses))

    def gradients(self) -> list[torch.Tensor]:
        """This rank's part of the whole model's, in which the table is once."""
        return [one.grad for name, one in self.stage.named_parameters()
                if name != "wte.weight" or self.stage.is_first]

    def update(self) -> None:
        """Clips as nn.utils.clip_grad_norm_ does on one rank."""
        square = nn.utils.get_total_norm(self.gradients()).square()
        dist.all_reduce(square)
        nn.utils.clip_grads_with_norm_(self.stage.parameters(), self.clip_norm, square.sqrt())
        self.optimizer.step()
        self.optimizer.zero_grad()

    def norm(self) -> float:
        """Of the whole gradient, in f64: f32's own sums are off by up to some 1e-5."""
        square = sum(one.double().square().sum() for one in self.gradients())
        dist.all_reduce(square)
        return math.sqrt(square.item())


def main() -> None:
    with open(sys.argv[1]) as file:
        config = json.load(file)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    training = Training(config)
    for line in sys.stdin:
        way, count = line.split()
        batches = [training.next_batch() for _ in range(int(count))]
        answer: dict[str, list[float]] = {"seconds": [], "losses": [], "norms": []}
        dist.barrier()
        for batch in batches:
            begin = time.perf_counter()
            answer["losses"].append(training.passes(*batch))
            if way == "check":
                answer["norms"].append(training.norm())
            training.update()
            answer["seconds"].append(time.perf_counter() - begin)
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
