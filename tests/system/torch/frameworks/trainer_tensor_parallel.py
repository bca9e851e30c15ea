"""transformers' own tensor parallelism: a Llama whose plan says how its layers are split."""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
import transformers
from torch.distributed.tensor import DTensor

import report

STEPS, ROWS, LENGTH, VOCABULARY = 4, 4, 16, 64

transformers.set_seed(7)
config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                  num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=LENGTH)
with tempfile.TemporaryDirectory() as folder:  # The same seed on each rank: the same file.
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    plan = {"tp_plan": "auto"} if int(os.environ.get("WORLD_SIZE", "1")) > 1 else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **plan)

text = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(STEPS):
    report.begin(step)
    optimizer.zero_grad()
    loss = model(input_ids=text, labels=text).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
report.finish(losses, [])
if dist.is_initialized():
    kept = sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in model.parameters())
    whole = sum(p.numel() for p in transformers.LlamaForCausalLM(config).parameters())
    if kept > 0.6 * whole:
        raise AssertionError(f"the model was not split: this rank keeps {kept} of {whole} elements")
    dist.destroy_process_group()
