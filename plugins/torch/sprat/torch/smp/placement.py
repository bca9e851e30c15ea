"""Which rank is in which group of reduced data (D), pipeline (P) and tensor (T) parallelism in SMP.

Pure. Groups list their ranks in rising order, and a rank's position in its group is its rank there.
Identities: pp * tp * rdp = size, pp * dp = size, mp * rdp = size.
Source: aws/sagemaker-python-sdk, doc/api/training/smd_model_parallel_general.rst, "Ranking Basics".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .config import Settings

STRATEGIES = {"cluster": "DPT", "spread": "TPD"}


class CommGroup(enum.Enum):
    """A kind of group; its value names the axes that its ranks differ in.

    D is split in R, replicas, and S, the shards of one copy.
    """

    WORLD = "RSPT"
    MP_GROUP = "PT"
    DP_GROUP = "RST"
    RDP_GROUP = "RS"
    PP_GROUP = "P"
    TP_GROUP = "T"
    SHARD_GROUP = "S"
    REPLICATE_GROUP = "R"


@dataclass(frozen=True)
class Placement:
    """size = replicas x shard x pipeline x tensor ranks.

    A shard group is consecutive in its reduced data group.
    """

    size: int
    shard: int
    pipeline: int = 1
    tensor: int = 1
    strategy: str = "DPT"

    @property
    def replicas(self) -> int:
        return self.size // (self.shard * self.pipeline * self.tensor)

    def coordinates(self, rank: int) -> dict[str, int]:
        """The rank's place on each axis; the strategy's right-most letter varies fastest."""
        sizes = {"D": self.replicas * self.shard, "P": self.pipeline, "T": self.tensor}
        place = {}
        for letter in reversed(self.strategy):
            rank, place[letter] = divmod(rank, sizes[letter])
        place["R"], place["S"] = divmod(place.pop("D"), self.shard)
        return place

    def groups(self, kind: CommGroup) -> list[list[int]]:
        """All groups of a kind: ranks whose other coordinates agree."""
        found: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.size):
            place = self.coordinates(rank)
            found.setdefault(
                tuple(place[axis] for axis in "RSPT" if axis not in kind.value), []
            ).append(rank)
        return list(found.values())

    def group(self, kind: CommGroup, rank: int) -> list[int]:
        """The group of a kind that the rank is in."""
        return next(group for group in self.groups(kind) if rank in group)

    def mesh(self, rank: int) -> list[list[list[int]]]:
        """Ranks by [replica][shard][tensor rank], for the pipeline stage of `rank`."""
        stage = self.coordinates(rank)["P"]
        ranks = {
            tuple(self.coordinates(other)[axis] for axis in "RST"): other
            for other in range(self.size)
            if self.coordinates(other)["P"] == stage
        }
        return [
            [[ranks[r, s, t] for t in range(self.tensor)] for s in range(self.shard)]
            for r in range(self.replicas)
        ]


class Ranker:
    """Who has the same shard as whom, by the names of SMP v2."""

    def __init__(self, placement: Placement):
        self._placement = placement

    def get_rep_rank(self, rank: int) -> int:
        """Which replica the rank's shard belongs to; those with 0 have one whole model."""
        return self._placement.coordinates(rank)["R"]

    def get_rep_groups(self) -> list[list[int]]:
        """For each shard the ranks that have it."""
        return self._placement.groups(CommGroup.REPLICATE_GROUP)


def place(settings: Settings, size: int) -> Placement:
    """The placement of `size` ranks; shard degree 0 is the largest possible."""
    tensor = settings.values["tensor_parallel_degree"]
    pipeline = settings.values.get("pipeline_parallel_degree", 1)
    if size % tensor != 0:
        raise ValueError(
            f"tensor_parallel_degree = {tensor} must divide the world of {size} ranks: "
            f"choose one of {_divisors(size)}"
        )
    if size // tensor % pipeline != 0:
        raise ValueError(
            f"pipeline_parallel_degree = {pipeline} must divide the world of {size} ranks over "
            f"tensor_parallel_degree {tensor}: choose one of {_divisors(size // tensor)}"
        )
    data_parallel = size // tensor // pipeline
    shard = settings.shard_degree or data_parallel
    if data_parallel % shard != 0:
        raise ValueError(
            f"{settings.shard_key} = {shard}: the world of {size} ranks is not replicas x {shard} "
            f"x tensor_parallel_degree {tensor}; the shard degree must divide {data_parallel}, so "
            f"choose one of {_divisors(data_parallel)}"
        )
    strategy = settings.values.get("placement_strategy", "cluster")
    return Placement(size, shard, pipeline, tensor, STRATEGIES.get(strategy, strategy))


def _divisors(number: int) -> str:
    return ", ".join(str(divisor) for divisor in range(1, number + 1) if number % divisor == 0)
