"""One rank of PyTorch's side: the GPT under DTensor's tensor parallelism on gloo, a few steps at a time."""

import json
import math
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)
from torch.nn import functional

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "fsdp"))
import gpt_numpy  # noqa: E402
import gpt_torch  # noqa: E402  (the same model under FSDP2)


class Attention(gpt_torch.Attention):
    """Of as many heads as the layers hold, whose query, key and value follow each other: one product for all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.c_attn(x).unflatten(-1, (-1, 3, self.c_attn.in_features // self.heads))
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(-2))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))

    @torch.no_grad()
    def order_by_heads(self) -> None:
        """From all queries, all keys, all values, as the trainer has them."""
        for one in self.c_attn.parameters():
            one.copy_(one.unflatten(0, (3, self.heads, -1)).transpose(0, 1).flatten(0, 2))


class Gpt(gpt_torch.Gpt):
    """Its positions are those of this rank's part of a sample, and the head is a layer."""

    def __init__(self, layers: int, width: int, heads: int, context: int):
        super().__init__(layers, width, heads, context)
        for block in self.h:
            block.attn = Attention(width, heads)
        self.head = nn.Linear(width, gpt_numpy.VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + local(self.wpe.weight)
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def parallelize(model: Gpt, mesh: DeviceMesh, by_sequence: bool) -> None:
    """As PyTorch's tutorial of tensor parallelism does, with the loss on parts of the vocabulary."""
    between = Shard(1) if by_sequence else Replicate()
    block = {"attn.c_attn": ColwiseParallel(), "attn.c_proj": RowwiseParallel(output_layouts=between),
             "mlp.c_fc": ColwiseParallel(), "mlp.c_proj": RowwiseParallel(output_layouts=between)}
    if by_sequence:
        gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        block |= {"ln_1": SequenceParallel(), "attn": gathered, "ln_2": SequenceParallel(), "mlp": gathered}
    plan = {f"h.{number}.{name}": style for number in range(len(model.h)) for name, style in block.items()}
    plan |= {"wte": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
             "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)}
    if by_sequence:
        plan["ln_f"] = SequenceParallel()
        model.wpe.weight = nn.Parameter(distribute_tensor(model.wpe.weight.detach(), mesh, [Shard(0)]))
    parallelize_module(model, mesh, plan)
    model.head.weight = model.wte.weight  # both are cut by the vocabulary


def adamw(model: nn.Module, config: dict) -> torch.optim.AdamW:
    """gpt_torch's; a fused call takes DTensors or plain ones."""
    whole = gpt_torch.adamw(model, config)
    groups = [{**group, "params": [one for one in group["params"] if isinstance(one, DTensor) == cut]}
              for group in whole.param_groups for cut in (True, False)]
    return torch.optim.AdamW([group for group in groups if group["params"]])


class Training:
    """A model of which this rank has a part, its optimizer, and its place in the text."""

    def __init__(self, config: dict):
        self.batches, self.steps = gpt_numpy.Batches(config), 0
        self.clip_norm = config["train"]["clip_norm"]
        self.model = Gpt(**config["model"])
        self.model.head.weight = self.model.wte.weight
        gpt_torch.initialise(self.model, config)
        for block in self.model.h:
            block.attn.order_by_heads()
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        parallelize(self.model, self.mesh, config["parallel"]["optimize"] == "memory")
        self.optimizer = adamw(self.model, config)

    def next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and targets of the next step, the same on every rank."""
        lines = torch.from_numpy(self.batches.of(self.steps, 0, 1).astype("int64"))
        self.steps += 1
        return lines[:, :-1].contiguous(), lines[:, 1:].contiguous()

    def passes(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        """Leaves the gradient; returns the loss."""
        with loss_parallel():
            loss = functional.cross_entropy(self.model(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
        self.sum_partial_gradients()
        return float(local(loss.detach()))

    def sum_partial_gradients(self) -> None:
        """Those of norms, of which each rank has its rows' part, in one message."""
        partial = [one for one in self.model.parameters()
                   if isinstance(one.grad, DTensor) and one.grad.placements[0].is_partial()]
        if not partial:
            return
        sums = torch.cat([one.grad.to_local().flatten() for one in partial])
        dist.all_reduce(sums)
        for one, part in zip(partial, sums.split([one.numel() for one in partial])):
            one.grad = DTensor.from_local(part.view(one.shape), self.mesh, [Replicate()], run_check=False)

    def gradients(self) -> list[torch.Tensor]:
        """Of which the whole model's are made, each once."""
        def is_cut(tensor: torch.Tensor) -> bool:
            return isinstance(tensor, DTensor) and tensor.placements[0].is_shard()

        return [local(one.grad) for one in self.model.parameters() if dist.get_rank() == 0 or is_cut(one.grad)]

    def update(self) -> None:
        """Clips as nn.utils.clip_grad_norm_ does on one rank."""
        square = nn.utils.get_total_norm(self.gradients()).square()
        dist.all_reduce(square)
        factor = min(1.0, self.clip_norm / (math.sqrt(square.item()) + 1e-6))
        torch._foreach_mul_([local(one.grad) for one in self.model.parameters()], factor)
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
