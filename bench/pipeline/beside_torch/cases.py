"""The GPTs that are trained over a pipeline, how they are cut, and what is asked of them."""

from dataclasses import dataclass

import shapes

RANKS = 2
# Relative, of first losses, gradient norms and losses after an update: as tests/system/torch/numerics.py has it for f32.
TOLERANCE = 1e-5
# Tokens a second, ours by PyTorch's.
LEAST_HERE, LEAST_BETWEEN_HOSTS = 1.3, 1.1
SCHEDULES = ["1f1b", "gpipe"]  # that both sides have, with one stage a rank


@dataclass(frozen=True)
class Case:
    """A GPT cut in its middle, and a step's micro-batches of `model.sequences` samples each."""

    model: shapes.Shape
    microbatches: int

    def text(self) -> str:
        return f"{self.model.text()} x {self.microbatches}"

    def tokens(self) -> int:
        return self.model.tokens(self.microbatches)

    def cut(self) -> int:
        """The first block of the second stage."""
        return self.model.layers // RANKS

    def config(self, schedule: str) -> dict:
        """As `sprat train` reads it; the other side reads the same."""
        return {**self.model.config(self.microbatches),
                "parallel": {"pipeline_parallel_degree": RANKS, "microbatches": self.microbatches,
                             "pipeline": schedule, "partition": ["embedding", f"h.{self.cut()}"]}}


# Layers x width, samples x context: the usual one; many small calls; large products; attention that counts;
# messages that count, since few operations belong to each number that is sent.
CASES = {
    "4x256": Case(shapes.Shape(4, 256, 128, 2), 8),
    "8x128": Case(shapes.Shape(8, 128, 128, 2), 8),
    "4x512": Case(shapes.Shape(4, 512, 128, 2), 8),
    "long": Case(shapes.Shape(4, 256, 512, 1), 8),
    "shallow": Case(shapes.Shape(2, 256, 128, 4), 8),
}
