"""How far several machines carry one training: a simulation. `python -m results.scaling` draws docs/scale.svg.

`python -m results` writes its tables, in docs/scale.md. Measured are a step of 20 streams on a processor and on a GPU
(bench-cpu and bench-gpu in speed.jsonl), and which part of the processor's no smaller number of streams shortens
(streams). A step of n processes takes

    T(n) = serial + compute(streams of one) + all-reduce(n)

The sum of gradients is one message after the backward pass, so nothing hides it. A ring sends 2 (n − 1) / n of the
gradients over its slowest link (Patarasuk & Yuan, 2009, "Bandwidth optimal all-reduce algorithms"), in 2 (n − 1) turns.
"""

from dataclasses import dataclass, replace
from functools import cache

from results.records import HERE, records

FIGURE = HERE.parent / "docs" / "scale.svg"
PARAMETERS, SMALL = 24.2e6, 1.3e6  # AWD-LSTM on Penn Treebank, tied; an LSTM of 300 units, 1,500 words
STREAMS, STEPS, LAYERS = 20, 70, 3  # as published (presets/merity2018.py)
TRAINING_TOKENS = 929_589  # of Penn Treebank
COUNTS = 1, 2, 4, 5, 8, 10, 20, 64
SHARED = [n for n in COUNTS if STREAMS % n == 0]  # spanlm gives all processes as many streams
OPERATIONS = 6  # a token and parameter, in both passes


@dataclass(frozen=True)
class Machine:
    """What a process has; times in seconds, rates a second."""

    name: str
    operations: float  # in products of this size
    kernel: float  # of one time step of one layer, in one pass, whatever the number of streams
    overhead: float  # of a step beside its kernels
    near: float  # bytes between the processes of one box
    far: float  # bytes out of a box
    turn: float  # of a message, whatever its size
    box: int  # processes in it

    def serial(self, layers: int = LAYERS) -> float:
        """Return the part of a step that no number of processes shortens: time steps wait for each other."""
        return self.overhead + 2 * STEPS * layers * self.kernel

    def compute(self, streams: float, parameters: float = PARAMETERS) -> float:
        """Return the time of the products of so many streams."""
        return OPERATIONS * parameters * streams * STEPS / self.operations

    def sum(self, count: int) -> float:
        """Return the time of the all-reduce of float32 gradients."""
        link = self.near if count <= self.box else self.far
        return 2 * (count - 1) * (4 * PARAMETERS / count / link + self.turn)

    def step(self, count: int, streams: float) -> float:
        """Return the time of a step of `count` processes that read `streams` each."""
        return self.serial() + self.compute(streams) + self.sum(count)


def _measured(table: str, what: str) -> float:
    name, size = "spanlm, training fp32", "AWD-LSTM PTB size tied, V"
    (row,) = (row for row in records("speed", table) if row["name"] == name and row["size"].startswith(size))
    return float(row[what])


@cache
def processor() -> Machine:
    """Return two cores, as measured, behind a network of 10 Gbit/s, as assumed.

    Weights are read once a time step, for however few streams: the floor is where the line through the times of 1 and
    20 streams meets none.
    """
    speed = _measured("bench-cpu", "tokens_per_second")
    (streams,) = records("speed", "streams")
    times = {int(n): t for n, t in streams["seconds"].items()}
    floor = 1 - (times[STREAMS] - times[1]) / (STREAMS - 1) * STREAMS / times[STREAMS]
    rate = OPERATIONS * PARAMETERS * speed / (1 - floor)
    kernel = floor * STREAMS * STEPS / speed / (2 * STEPS * LAYERS)
    return Machine("two cores of a processor, 10 Gbit/s", rate, kernel, 0.0, 1.25e9, 1.25e9, 50e-6, 1)


@cache
def gpu() -> Machine:
    """Return one GPU, whose whole step is as measured, with links and shares of the step as assumed."""
    assumed = Machine("GPUs, eight in a box", 30e12, 15e-6, 0.0, 200e9, 25e9, 10e-6, 8)
    return replace(assumed, overhead=_measured("bench-gpu", "milliseconds") / 1e3 - assumed.step(1, STREAMS))


def sizes() -> list[list[str]]:
    """Return a row for each number of processes, and for each way to use them."""
    rows = [["processes", "same batch, cores", "same batch, GPUs", "same streams each, GPUs", "steps an epoch"]]
    cpu = processor()
    for n in COUNTS:
        same = [
            f"{one.step(1, STREAMS) / one.step(n, STREAMS / n):.1f}" if n in SHARED else "—" for one in (cpu, gpu())
        ]
        weak = n * gpu().step(1, STREAMS) / gpu().step(n, STREAMS)
        steps = TRAINING_TOKENS / (n * STREAMS * STEPS)
        rows.append([str(n), *same, f"{weak:.1f}", f"{steps:.0f}"])
    return rows


def parts() -> list[list[str]]:
    """Return what a step consists of, in milliseconds."""
    rows = [["", "serial", "compute", "sum of gradients", "step", "tokens/s"]]
    for machine, count in ((processor(), 1), (processor(), 5), (processor(), 20), (gpu(), 1), (gpu(), 5), (gpu(), 20)):
        each = [machine.serial(), machine.compute(STREAMS / count), machine.sum(count)]
        cells = [f"{1e3 * x:,.1f}" for x in (*each, sum(each))]
        rows.append([f"{machine.name}: {count}", *cells, f"{STREAMS * STEPS / sum(each):,.0f}"])
    return rows


def side_by_side() -> list[list[str]]:
    """Return how many small trainings one GPU carries: their serial parts overlap, their products take turns."""
    rows = [["trainings on one GPU", "of 24.2 million parameters", "of 1.3 million"]]
    for runs in (1, 2, 4, 8, 16):
        cells = []
        for parameters, layers in ((PARAMETERS, LAYERS), (SMALL, 1)):
            compute = gpu().compute(STREAMS, parameters)
            alone = gpu().serial(layers) + compute
            cells.append(f"{runs * alone / max(alone, runs * compute):.1f}")
        rows.append([str(runs), *cells])
    return rows


def figure() -> bytes:
    """Draw both curves, and what no cost would give."""
    import matplotlib.pyplot as plt

    from spanlm.analysis.figures import STYLES, figure_bytes, styled

    with styled():
        plot, axes = plt.subplots(figsize=(6.2, 3.2))
        plot.set_label("Simulated: how much faster several processes are")
        cpu, slow = processor(), replace(gpu(), far=gpu().near)
        curves = {
            "same streams each, GPUs": [n * gpu().step(1, STREAMS) / gpu().step(n, STREAMS) for n in COUNTS],
            "same batch, cores": [cpu.step(1, STREAMS) / cpu.step(n, STREAMS / n) for n in SHARED],
            "same batch, GPUs, one box for all": [slow.step(1, STREAMS) / slow.step(n, STREAMS / n) for n in SHARED],
            "same batch, GPUs": [gpu().step(1, STREAMS) / gpu().step(n, STREAMS / n) for n in SHARED],
        }
        axes.plot(COUNTS, COUNTS, color="#5b626d", linewidth=0.8, linestyle=(0, (3, 2)), label="no cost")
        for (name, values), style in zip(curves.items(), STYLES, strict=False):
            axes.plot(
                COUNTS if len(values) == len(COUNTS) else SHARED,
                values,
                color=style.colour,
                marker=style.mark,
                markersize=4,
                label=name,
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(COUNTS, [str(n) for n in COUNTS])
        axes.set_yticks(COUNTS, [str(n) for n in COUNTS])
        axes.set_xlabel("processes")
        axes.set_ylabel("times as fast as one (simulated)")
        axes.legend(frameon=False, fontsize=8)
        content = figure_bytes(plot, ".svg")
        plt.close(plot)
        return content


if __name__ == "__main__":
    FIGURE.write_bytes(figure())
