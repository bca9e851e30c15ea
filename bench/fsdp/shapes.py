"""The GPTs that are trained, and what is asked of them."""

from dataclasses import dataclass

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"  # Debian package jargon-text
VOCABULARY = 256


@dataclass(frozen=True)
class Shape:
    """A GPT over bytes, and each rank's part of a batch."""

    layers: int
    width: int
    context: int
    sequences: int

    def text(self) -> str:
        return f"{self.layers}x{self.width}, {self.sequences}x{self.context} tokens"

    def tokens(self, ranks: int) -> int:
        return self.sequences * self.context * ranks

    def parameters(self) -> int:
        block = 12 * self.width**2 + 13 * self.width
        return self.layers * block + (VOCABULARY + self.context + 2) * self.width

    def config(self, ranks: int) -> dict:
        """As `sprat train` reads it: ZeRO-3 over all ranks, a rate that stays the same."""
        return {
            "model": {"layers": self.layers, "width": self.width, "heads": self.width // 64,
                      "context": self.context},
            "data": {"files": [TEXT], "validation_share": 0.001},
            "train": {"steps": 1_000_000, "batch": self.sequences * ranks, "learning_rate": 1e-3,
                      "final_learning_rate": 1e-3, "warmup_steps": 0, "clip_norm": 1.0, "seed": 1,
                      "optimizer": {"weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95},
                      "validate_every": 0, "sample_bytes": 0},
            "parallel": {"hybrid_shard_degree": ranks},
        }


# By number of ranks and name: about the share of FSDP2's step that gloo's communication takes on two
# cores. The first of a share is a model whose calls take a while, the second one of many small calls.
BESIDE_TORCH = {
    2: {"20%": Shape(4, 256, 128, 8), "40%": Shape(4, 512, 128, 1), "60%": Shape(4, 512, 32, 1),
        "60% small": Shape(12, 128, 64, 1)},
    4: {"20%": Shape(4, 256, 128, 6), "40%": Shape(4, 256, 128, 2), "60%": Shape(4, 512, 64, 1),
        "60% small": Shape(12, 128, 64, 1)},
}
# Of the first step's losses, from the same weights and samples.
LOSS_TOLERANCE = 1e-5
# About 20 % as well, where four hosts at 1 Gbit/s share two cores.
FOUR_HOSTS = Shape(4, 256, 128, 20)
EXPOSED_BAR = 0.1
# ZeRO-3's wires at 1 Gbit/s need at least HYBRID_WIRE times as long as its computation.
HYBRID = Shape(8, 512, 16, 1)
HYBRID_WIRE = 3.0
# Few tokens a rank, and small enough that all ways' copies fit beside each other.
NARROW = Shape(4, 256, 16, 1)
# By micro-steps: how many times faster HSDP is.
HYBRID_BARS = {1: 1.25, 4: 3.0}


def bar(name: str) -> float:
    """Tokens a second, ours by PyTorch's."""
    return {"20%": 1.1, "40%": 1.3, "60%": 1.6}[name.split()[0]]
