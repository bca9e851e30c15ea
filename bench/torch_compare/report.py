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


HEADER = (f"{'':15}{'':>9}{'gloo':>10}{'sprat':>10}{'its mem.':>10}   {'gloo / sprat':19}"
          f"{'gloo / its memory':19}   missed bar")


def row(cell: dict) -> str:
    def ratio_text(way: str) -> str:
        if way not in cell["ratio"]:
            return ""
        ratio = cell["ratio"][way]
        return f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"

    times = "".join(f"{time_text(cell['median_s'][way]) if way in cell['median_s'] else '':>10}"
                    for way in (GLOO, SPRAT, OURS))
    wrong = [f"{count} wrong of {way}!" for way, count in cell["wrong"].items() if count]
    return (f"{SHORT[cell['collective']]:15}{size_text(cell['bytes']):>9}{times}   "
            f"{ratio_text(SPRAT):19}{ratio_text(OURS):19}   {'; '.join(wrong + misses(cell))}")


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
            chosen = [cell for cell in cells if (cell["collective"], cell["ranks"]) == (name, count)]
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
STEP_HEADER=WIRE_HEADER=""
