"""torchtitan: its Llama of six layers, alone or over two ranks: torchtitan_train.py alone|fsdp|tp|pp."""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
import zlib
from typing import Any

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="torchtitan."))
os.environ |= {"HF_HOME": str(FOLDER / "cache"), "HF_HUB_OFFLINE": "1"}

import torch
import torch.distributed as dist

import report
import torchtitan_on_cpu  # noqa: F401
import torchtitan_text

sys.argv[1:] = torchtitan_text.options(sys.argv[1], FOLDER)  # torchtitan reads them when it is imported.

from torchtitan.train import Trainer, main


class Reporting(Trainer):
    def __init__(self, config: Any):
        super().__init__(config)
        self.losses: list[float] = []
        generator = torch.Generator()
        with torch.no_grad():  # Values by name, so that they do not depend on the cut, nor on which layers compute again.
            for name, one in (pair for part in self.model_parts for pair in part.named_parameters()):
                generator.manual_seed(zlib.crc32(name.replace("_checkpoint_wrapped_module.", "").encode()))
                whole = torch.empty(one.shape).uniform_(-0.05, 0.05, generator=generator) + (one.dim() == 1)
                if hasattr(one, "device_mesh"):
                    whole = torch.distributed.tensor.distribute_tensor(whole, one.device_mesh, one.placements)
                one.copy_(whole)
        log = self.metrics_processor.log

        def keep(step: int, loss: float, *rest: Any, **named: Any) -> None:
            log(step, loss, *rest, **named)
            greatest = torch.tensor(loss)  # Of a pipeline's ranks the last alone has one, the others -1.
            dist.all_reduce(greatest, dist.ReduceOp.MAX)
            self.losses.append(greatest.item())

        self.metrics_processor.log = keep

    def train_step(self, data_iterator: Any) -> None:
        report.begin(self.step - 1)
        super().train_step(data_iterator)

    def train(self) -> None:
        super().train()
        report.finish(self.losses, [])


if __name__ == "__main__":
    main(Reporting)
