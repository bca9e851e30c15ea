"""Ratios, bars, tables and the plot of the comparison with gloo."""

import statistics

from ways import GLOO, OURS, SPRAT

KIB, MIB = 1 << 10, 1 << 20
SHORT = {"all_reduce": "all_reduce", "all_gather_into_tensor": "all_gather",
         "reduce_scatter_tensor": "reduce_scatter", "all_to_all_single": "all_to_all",
         "barrier": "barrier"}


def size_text(size: int) -> str:
    for unit, scale in (("MiB", MIB), ("KiB", KIB)):
        if size >= scale and size % scale == 0:
            return f"{size // scale} {unit}"
    return f"{size} B"


def time_text(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def quartiles(theirs: list[float], ours: list[float]) -> dict[str, float]:
    """Of the ratios theirs / ours, each of one round."""
    low, middle, high = statistics.quantiles([a / b for a, b in zip(theirs, ours)], n=4,
                                             method="inclusive")
    return {"low": low, "median": middle, "high": high}


def bar(size: int, way: str) -> float:
    """How many times faster than gloo a call has to be."""
    if size <= 4 * KIB:
        return 5.0
    if size <= 4 * MIB:
        return 3.0
    return 3.0 if way == OURS else 2.0


def add_ratios(cell: dict) -> dict:
    samples = cell["samples_s"]
    cell["ratio"] = {way: quartiles(samples[GLOO], samples[way]) for way in samples if way != GLOO}
    cell["missed"] = misses(cell)
    return cell


def misses(cell: dict) -> list[str]:
    return [f"{way}: {ratio['median']:.2f} of {bar(cell['bytes'], way):g}"
            for way, ratio in cell["ratio"].items() if ratio["median"] < bar(cell["bytes"], way)]


def ratio_text(cell: dict, way: str) -> str:
    """Three digits of the median and of the quartiles."""
    if way not in cell["ratio"]:
        return ""
    ratio = cell["ratio"][way]
    digits = 0 if ratio["median"] >= 100 else 1 if ratio["median"] >= 10 else 2
    low, middle, high = (f"{ratio[key]:.{digits}f}" for key in ("low", "median", "high"))
    return f"{middle} ({low}-{high})"


HEADER = (f"{'':15}{'':>9}{'gloo':>10}{'sprat':>10}{'its mem.':>10}   {'gloo / sprat':20}"
          f"{'gloo / its memory':20}missed bar")


def row(cell: dict) -> str:
    return cell_text(cell) + "; ".join(wrong_texts(cell) + misses(cell))


def cell_text(cell: dict) -> str:
    times = "".join(f"{time_text(cell['median_s'][way]) if way in cell['median_s'] else '':>10}"
                    for way in (GLOO, SPRAT, OURS))
    return (f"{SHORT[cell['collective']]:15}{size_text(cell['bytes']):>9}{times}   "
            f"{ratio_text(cell, SPRAT):20}{ratio_text(cell, OURS):20}")


def wrong_texts(cell: dict) -> list[str]:
    return [f"{count} elements of {way} are wrong!"
            for way, count in cell["wrong"].items() if count]


STEP_WAYS = {SPRAT: "gloo / sprat", "sprat, overlap": "gloo / overlap"}
STEP_HEADER = (f"{'':21}{'':25}{'gloo':>8}{'sprat':>8}{'overlap':>8}{'none':>8}{'share':>7}   "
               + "".join(f"{title:19}" for title in STEP_WAYS.values()) + "bar")


def add_step_ratios(cell: dict, bar: float) -> dict:
    """Ratios of steps, and gloo's communication as a share of its step."""
    samples = cell["samples_s"]
    cell["ratio"] = {way: quartiles(samples[GLOO], samples[way]) for way in STEP_WAYS
                     if way in samples}
    cell["share"] = 1 - 1 / quartiles(samples[GLOO], samples["nothing"])["median"]
    cell["bar"] = bar
    cell["missed"] = [way for way, ratio in cell["ratio"].items() if ratio["median"] < bar]
    return cell


def step_row(cell: dict) -> str:
    times = "".join(f"{time_text(cell['median_s'][way]) if way in cell['median_s'] else '':>8}"
                    for way in (GLOO, *STEP_WAYS, "nothing"))
    wrong = [f"{count} losses of {way} differ!" for way, count in cell["wrong"].items() if count]
    missed = [f"missed by {way}" for way in cell["missed"]]
    return (f"{cell['shape']:21}{cell['text']:25}{times}{cell['share']:7.0%}   "
            + "".join(f"{ratio_text(cell, way):19}" for way in STEP_WAYS)
            + f"{cell['bar']:g} {'; '.join(wrong + missed)}")


# A frame of 1514 bytes, as the limit of a wire counts it, carries 1448 of a TCP stream.
GOODPUT = 1448 / 1514
WIRE_HEADER = HEADER.replace("missed bar", "share of the wire: gloo, sprat, its memory")


def wire_bytes(collective: str, size: int, hosts: int) -> float:
    """What must leave each of `hosts` hosts of one rank."""
    return size * (hosts - 1) / hosts * (2 if collective == "all_reduce" else 1)


def add_wire(cell: dict, bits_per_second: float) -> dict:
    """Of each way's time, the share in which a wire carries what must cross it."""
    needed = wire_bytes(cell["collective"], cell["bytes"], cell["ranks"]) * 8
    cell["wire_share"] = {way: needed / (bits_per_second * GOODPUT) / seconds
                          for way, seconds in cell["median_s"].items()}
    cell["missed"] = []  # no bar: where gloo fills the wire nobody is faster
    return cell


def wire_row(cell: dict) -> str:
    return cell_text(cell) + "".join(f"{share:>6.0%}" for share in cell["wire_share"].values()) + (
        "   " + "; ".join(wrong_texts(cell)))


def add_step_wire(cell: dict, bits_per_second: float) -> dict:
    """What a wire needs for two gathers and a reduction of all f32 parameters."""
    hosts = cell["ranks"]
    crossing = 3 * 4 * cell["parameters"] * (hosts - 1) / hosts
    cell["wire_s"] = crossing * 8 / (bits_per_second * GOODPUT)
    cell["wire_share"] = {way: cell["wire_s"] / median for way, median in cell["median_s"].items()}
    return cell


def step_wire_text(cell: dict) -> str:
    shares = (f"{way} {cell['wire_share'][way]:.0%}" for way in (GLOO, *STEP_WAYS)
              if way in cell["wire_share"])
    return (f"{cell['shape']}: a wire needs {time_text(cell['wire_s'])} at the least; its share of "
            f"the step: {', '.join(shares)}")


def plot(cells: list[dict], path: str) -> None:
    """A panel for each collective and number of ranks: time by size, gloo's and ours."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter
    matplotlib.rcParams.update({"svg.fonttype": "none", "font.size": 9})
    names = [name for name in SHORT if name != "barrier"
             and any(cell["collective"] == name for cell in cells)]
    counts = sorted({cell["ranks"] for cell in cells})
    figure, axes = pyplot.subplots(len(counts), len(names), squeeze=False, sharex=True,
                                   sharey="row", figsize=(3.1 * len(names), 2.7 * len(counts)))
    styles = {GLOO: dict(color="0.45", linestyle="--"), SPRAT: dict(color="tab:blue"),
              OURS: dict(color="tab:orange")}
    for line, count in zip(axes, counts):
        for axis, name in zip(line, names):
            chosen = [cell for cell in cells
                      if (cell["collective"], cell["ranks"]) == (name, count)]
            for way, style in styles.items():
                points = [(cell["bytes"], cell["median_s"][way] * 1e6) for cell in chosen
                          if way in cell["median_s"]]
                axis.plot(*zip(*points), label=way, marker=".", **style)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_title(f"{SHORT[name]}, {count} ranks")
            axis.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(int(size))))
            axis.set_xticks([8, 4 * KIB, MIB, 64 * MIB])
            axis.grid(alpha=0.3)
    for line in axes:
        line[0].set_ylabel("microseconds a call")
    axes[0][0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)
