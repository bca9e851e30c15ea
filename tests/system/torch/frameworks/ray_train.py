"""Ray Train: TorchTrainer over two workers."""

from __future__ import annotations

import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader

WORKERS = 2


def train() -> None:
    import torch.distributed as dist

    import exact
    import report

    model = prepare_model(exact.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exact.RATE)
    loader = prepare_data_loader(DataLoader(exact.dataset(), batch_size=exact.ROWS // WORKERS))
    losses = []
    for step, (inputs, targets) in enumerate(loader):
        report.begin(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)
        losses.append(total / WORKERS)
    report.finish(losses, model.parameters())


if __name__ == "__main__":
    TorchTrainer(train, scaling_config=ray.train.ScalingConfig(num_workers=WORKERS)).fit()
