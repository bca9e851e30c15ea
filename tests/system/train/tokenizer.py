#!/usr/bin/env python3
"""Training on the tokens of a tokenizer.json under mpirun. tokenizer.py SPRAT [CASE ...]

ranks     1, 2 and 4 ranks, a pipeline of 2, and layers that are cut among ranks which read their own samples, have the same losses to
          the bit; a text is written at the end
resume    a run goes on with its tokenizer, written in another way, and with no other
"""
import json
import subprocess

from start import mpirun, run_cases
from stop import fail, finish

STEPS = 6
TEXT = "all work and no play makes jack a dull boy, said the tokenizer's maker; 数据 naïve.\n" * 400
MERGES = [("a", "l"), ("al", "l"), ("o", "r"), ("Ġ", "w"), ("Ġw", "or"), ("Ġwor", "k"), ("Ġ", "t"), ("Ġt", "o")]


def byte_characters():
    """GPT-2's printable character for each byte."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]


def tokenizer(merges):
    """What a tokenizer.json of GPT-2's kind holds."""
    words = byte_characters() + [left + right for left, right in merges]
    return {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {word: number for number, word in enumerate(words)}, "merges": merges},
            "added_tokens": [{"id": len(words), "content": "<|endoftext|>"}]}


def configuration(folder, tokens="tokenizer.json", **sections):
    (folder / "text.txt").write_text(TEXT)
    config = {"model": {"layers": 2, "width": 32, "heads": 2, "context": 32, "vocabulary": 320},
              "data": {"files": ["text.txt"], "tokenizer": tokens},
              "train": {"steps": STEPS, "batch": 8, "sample_bytes": 60, "gemm": "reference"}, **sections}
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "config.json"


def train(sprat, folder, ranks, *more, **sections):
    """What the run prints, and its losses."""
    report = folder / "report"
    run = mpirun((ranks, sprat, "train", configuration(folder, **sections), "--report", report, *more))
    output, errors = finish(run)
    if run.returncode != 0:
        fail(f"{ranks} ranks ended with status {run.returncode}", output, errors)
    return output, [json.loads(line)["loss_hex"] for line in report.read_text().splitlines()]


def case_ranks(sprat, folder):
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(MERGES)))
    expected = None
    own_samples = {"tensor_parallel_degree": 2, "prescaled_batch": False}
    for ranks, stages, microbatches, keys in [(1, 1, 4, {}), (2, 1, 2, {}), (4, 1, 1, {}), (2, 2, 4, {}), (4, 2, 2, {}),
                                              (4, 1, 2, own_samples), (4, 2, 4, own_samples)]:
        output, losses = train(sprat, folder, ranks, parallel={
            "gradient_order": "tree", "pipeline_parallel_degree": stages, "microbatches": microbatches, **keys})
        expected = expected or losses
        if len(losses) != STEPS or losses != expected:
            fail(f"{ranks} ranks in {stages} stages, {keys}, have the losses {losses}, not {expected}", output, "")
        for told in ["tokens of 265,", "nats per token (", "the model writes"]:
            if told not in output:
                fail(f"{ranks} ranks: nothing says {told!r}", output, "")


def case_resume(sprat, folder):
    checkpoint = {"checkpoint": {"folder": "saved"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(MERGES)))
    _, whole = train(sprat, folder, 2)
    train(sprat, folder, 2, "--steps", 3, **checkpoint)
    (folder / "other.json").write_text(json.dumps(tokenizer(MERGES[:-1] + [("d", "u")])))
    run = mpirun((2, sprat, "train", configuration(folder, "other.json", **checkpoint), "--resume"))
    output, errors = finish(run)
    if run.returncode == 0 or "step " in output or "was trained with data.tokenizer 265 tokens" not in errors:
        fail(f"another tokenizer was not refused, status {run.returncode}", output, errors)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(MERGES), indent=2, ensure_ascii=False))
    output, losses = train(sprat, folder, 2, "--resume", **checkpoint)
    if losses != whole or "resuming after step 3" not in output:
        fail(f"the run that resumes has the losses {losses}, not {whole}", output, "")


if __name__ == "__main__":
    run_cases(globals())
