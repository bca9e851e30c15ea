"""Hugging Face Trainer: a GPT-2 of two layers."""

from __future__ import annotations

import os
import tempfile

import torch
import transformers

import report

STEPS, ROWS, LENGTH, VOCABULARY = 6, 8, 16, 64


class Text(torch.utils.data.Dataset):
    """The same rows at each step, so that the loss falls."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self.rows = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator)

    def __len__(self) -> int:
        return STEPS * ROWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self.rows[index % ROWS]
        return {"input_ids": row, "labels": row}


class Steps(transformers.TrainerCallback):
    def on_step_begin(self, arguments, state, control, **_) -> None:
        report.begin(state.global_step)


class Trainer(transformers.Trainer):
    """Keeps losses as they are: the log has four digits."""

    def __init__(self, *arguments, **named) -> None:
        super().__init__(*arguments, **named)
        self.losses: list[float] = []

    def training_step(self, *arguments, **named) -> torch.Tensor:
        loss = super().training_step(*arguments, **named)
        self.losses.append(self.accelerator.gather(loss).mean().item())
        return loss


transformers.set_seed(7)
config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4,
                                 resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=transformers.TrainingArguments(
            output_dir=folder, use_cpu=True, max_steps=STEPS, learning_rate=0.1, optim="sgd",
            per_device_train_batch_size=ROWS // int(os.environ.get("WORLD_SIZE", "1")),
            lr_scheduler_type="constant", save_strategy="no", report_to=[], disable_tqdm=True),
        train_dataset=Text(), callbacks=[Steps()])
    trainer.train()
report.finish(trainer.losses, trainer.model.parameters())
