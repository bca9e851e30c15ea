#!/usr/bin/env python3
"""Checkpoints of `sprat train` under one cut of the model, loaded under another: cuts.py SPRAT [--whole]

A cut is tensor ranks x stages x shards x replicas. A run is saved halfway under the one and goes on under the other. Held: what is
saved halfway and at the end, parameters and optimizer state, and the losses and norms of the steps behind, have the bits of
one rank that never stopped. Five cuts, the one rank too: --whole takes all 25 pairs, in f32 and in bf16 rounded by chance; else a few
pairs in f32. Whoever saves is threads, whoever loads processes of mpirun.
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
from job import Trainer, stored_tensors  # noqa: E402

STEPS, HALF = 4, 2
MODEL = {"layers": 4, "width": 32, "heads": 4, "context": 16}
MICROBATCHES = 8  # over all data ranks: their tree has the same bits on any
# (T, P, S, R), and keys that say more.
CUTS = {
    "one rank": ((1, 1, 1, 1), {}),
    "T 2 x P 2 x S 2": ((2, 2, 2, 1), {"activation_checkpointing": "each", "offload_activations": True}),
    "T 4 x R 2": ((4, 1, 1, 2), {"optimize": "speed", "strategy": "ddp"}),
    "T 2 x S 2 x R 2": ((2, 1, 2, 2), {"strategy": "hfsdp", "placement_strategy": "spread", "persistence_threshold": 100}),
    "P 2 x S 2 x R 2": ((1, 2, 2, 2), {"pipeline": "1f1b", "strategy": "hsdp"}),
}
SAMPLE = [("one rank", "T 2 x P 2 x S 2"), ("T 2 x P 2 x S 2", "T 2 x S 2 x R 2"), ("T 4 x R 2", "one rank")]
FORMS = {"f32": {}, "bf16 by chance": {"precision": {"parameters": "bf16", "stochastic_rounding": True}}}


def configuration(cut, form):
    (tensor, stages, shards, replicas), keys = CUTS[cut]
    parallel = {"tensor_parallel_degree": tensor, "pipeline_parallel_degree": stages, "hybrid_shard_degree": shards,
                "microbatches": MICROBATCHES // (shards * replicas), "gradient_order": "tree", **keys}
    return {"model": MODEL, "data": {"files": ["text.txt"]}, "parallel": parallel,
            "train": {"steps": STEPS, "batch": 16, "learning_rate": 0.01, "validate_every": 0, "sample_bytes": 0,
                      "gemm": "reference", **FORMS[form]},
            "checkpoint": {"folder": "saved", "every": HALF, "keep": 9}}


def ranks_of(cut):
    (tensor, stages, shards, replicas), _ = CUTS[cut]
    return tensor * stages * shards * replicas


class Pairs:
    """Of one form."""

    def __init__(self, trainer, form):
        self.trainer, self.form, self.folder = trainer, form, trainer.folder
        shutil.rmtree(self.folder / "saved", ignore_errors=True)
        self.losses = self.train("one rank", "threads").bits()
        self.half, self.end = self.saved(HALF), self.saved(STEPS)
        assert len(self.losses) == STEPS and self.half != self.end, self.losses
        # Parameters and two states of each.
        assert sum(name.startswith("optimizer.") for name in self.end) * 3 == (len(self.end) - 1) * 2, list(self.end)

    def train(self, cut, how, arguments=()):
        return self.trainer.trained(configuration(cut, self.form), ranks_of(cut), how, arguments)

    def saved(self, step):
        return stored_tensors(self.folder / "saved" / f"step-{step:08}")

    def save(self, cut):
        """Leaves the run halfway under that cut; whether that has the bits of one rank."""
        shutil.rmtree(self.folder / "saved")
        losses = self.train(cut, "threads", ["--steps", HALF]).bits()
        kept = self.folder / "half"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.folder / "saved", kept, symlinks=True)
        return losses == self.losses[:HALF] and differing(self.saved(HALF), self.half) == []

    def load(self, cut):
        """Goes on with what is left halfway; what is not as it should be."""
        shutil.rmtree(self.folder / "saved")
        shutil.copytree(self.folder / "half", self.folder / "saved", symlinks=True)
        losses = self.train(cut, "mpirun", ["--resume"]).bits()
        return (["losses"] if losses != self.losses[HALF:] else []) + differing(self.saved(STEPS), self.end)


def differing(tensors, expected):
    return sorted(name for name in tensors.keys() | expected.keys() if tensors.get(name) != expected.get(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sprat")
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    wrong = pairs = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("".join(f"line {i} of a text that repeats itself.\n" for i in range(400)))
        trainer = Trainer(options.sprat, folder, dict(os.environ))
        for form in FORMS if options.whole else ["f32"]:
            of_form = Pairs(trainer, form)
            for first in CUTS:
                others = [then for then in CUTS if options.whole or (first, then) in SAMPLE]
                if not others:
                    continue
                if not of_form.save(first):
                    wrong += 1
                    print(f"{form}, {first}: WRONG: what is saved halfway is not what one rank saves")
                for then in others:
                    different = of_form.load(then)
                    pairs += 1
                    wrong += bool(different)
                    said = f"WRONG: {', '.join(different)}" if different else f"{len(of_form.end) - 1} tensors, losses, norms: every bit"
                    print(f"{form}, {first} -> {then}: {said}", flush=True)
    print(f"{pairs} pairs, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
