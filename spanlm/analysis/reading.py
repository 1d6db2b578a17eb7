r"""How much better reading times are predicted with a model's surprisal than without it.

Two nested linear models of the time y of a word in context, in the unit of the table (ms):

    baseline    y = x'β + b_s + ε                                    b_s ~ N(0, θ σ²), ε ~ N(0, σ²)
    full        y = x'β + γ_0 S_t + … + γ_K S_{t−K} + b_s + ε

x is a constant and the baseline's predictors of the word and of the K words before it, S surprisal in bits, s the
subject. Of means over subjects there is no b (θ = 0: ordinary least squares). Otherwise β and γ are of generalised
least squares, and θ of restricted maximum likelihood (REML), as in lme4.

Items (texts) are dealt to folds. For each fold f both models are fit on all other folds, and

    Δ = 1/N Σ_f Σ_{t ∈ f} [ log N(y_t; full) − log N(y_t; baseline) ]                         nats a time

with σ² = r'V⁻¹r / (n − p) and the predicted b_s (BLUP) of the other folds. To fit K + 1 coefficients of no use costs
about (K + 1) / 2N, so that a useless model is a little below 0.

Interval: items are drawn with replacement, β and γ of all folds fit anew in each draw (θ stays), and the middle 95 % of
the draws are taken, moved so that their median is the mean of Δ and of Δ where no fold is held out: the one is as much
too low, by the cost of fitting, as the other is too high. It is an interval of what surprisal is worth whose
coefficients are known: 0 if it is useless. With fits held fixed and Δ in the middle, a useless surprisal would seem
worse than none in a third of all corpora. All runs see the same draws, so that differences are paired.

All of it needs only sums by item: of cross products, and by subject.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.export import write_whole
from spanlm.errors import InputError
from spanlm.scoring.resampling import DRAWS, Array, Counts, Interval, away_from_mean, interval_of
from spanlm.store.plain import cells_line

_RIDGE = 1e-9
"""Added to the diagonal of cross products of standardised columns: a draw may lack what tells two of them apart."""
_SAME = 1e-6
"""Of a standardised column, what others do not explain, below which it is one of their sums."""
_HELD = 1 << 23
"""Numbers held at a time, 64 MB."""


@dataclass(frozen=True, eq=False)
class Times:
    """N reading times with the number of the item (text) of each, and of its subject; None: means over subjects."""

    values: Array  # (N,)
    items: Counts  # (N,) from 0 to I − 1
    subjects: Counts | None = None  # (N,) from 0 to G − 1


@dataclass(frozen=True)
class Coefficient:
    """A coefficient of the full model on all folds, and its standard error, in the unit of the times."""

    name: str
    value: float
    error: float


@dataclass(frozen=True, eq=False)
class Gain:
    """What a surprisal adds to the baseline."""

    delta: float  # Δ, nats a time
    draws: Array  # (DRAWS,) of Δ
    coefficients: tuple[Coefficient, ...]  # of all columns, the surprisal's last

    @property
    def interval(self) -> Interval:
        """95 %."""
        return interval_of(self.draws[:, None])[0]


def folds_of(items: int, folds: int, seed: int) -> Counts:
    """Deal items to folds at random, so that the numbers of items differ by one at most; (items,)."""
    if items < folds:
        way = "Take fewer, or a finer item, as a sentence"
        raise InputError("folds", folds, f"must be at most {items}, the items", way)
    return np.random.default_rng(seed).permutation(items) % folds


class NestedModels:
    """A baseline, to which `gain` adds surprisal.

    Args:
        times: N times.
        baseline: (N, p) its predictors, without a constant; `names` are theirs.
        folds: how many.
        seed: of the folds, and of the draws.

    Raises:
        InputError: fewer items than folds, or than times as coefficients; a predictor that is a sum of others.
    """

    def __init__(self, times: Times, baseline: Array, names: Sequence[str], folds: int = 10, seed: int = 1) -> None:
        self.times: Times = times
        self._baseline, self._names = baseline, tuple(names)
        items = int(times.items.max()) + 1
        self.folds: Counts = folds_of(items, folds, seed)
        generator = np.random.default_rng([seed, 1])
        drawn = generator.integers(items, size=(DRAWS, items)) + items * np.arange(DRAWS)[:, None]
        self._drawn = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)
        self._factor = float(away_from_mean(np.array([items]))[0])
        if not (spread := float(times.values.std())):
            raise InputError("response", limit="is the same at every word that is left")
        self._mean, self._spread = float(times.values.mean()), spread
        self._values = (times.values - self._mean) / spread
        self._refuse_sums(baseline, self._names)
        #: Δ of the baseline over the mean of the training folds, nats a time
        self.baseline_gain: float = self._sums(baseline).delta(range(1), range(1 + baseline.shape[1]))

    def gain(self, surprisal: Array, names: Sequence[str]) -> Gain:
        """Return the gain of surprisals (N, K + 1).

        Raises:
            InputError: a surprisal is a sum of other columns.
        """
        columns, names = np.column_stack([self._baseline, surprisal]), (*self._names, *names)
        self._refuse_sums(columns, names)
        sums = self._sums(columns)
        few, all_ = range(1 + self._baseline.shape[1]), range(1 + columns.shape[1])
        draws = sums.drawn_deltas(few, all_, self._drawn)
        delta = sums.delta(few, all_)
        middle = (delta + sums.delta(few, all_, inside=True)) / 2
        draws = np.where(np.isfinite(draws), draws, np.nan)  # a draw of few items may have nothing to fit
        draws = middle + (draws - np.nanmedian(draws)) * self._factor
        return Gain(delta, draws, tuple(self._coefficients(sums, columns, names)))

    def _refuse_sums(self, columns: Array, names: Sequence[str]) -> None:
        """Refuse a column that does not vary, or that is a weighted sum of those before it."""
        count, width = columns.shape
        if count < 2 * (width + 2):
            why = f"{count} times are left, too few for {width + 1} coefficients"
            raise InputError("response", limit=why, way_out="Take fewer predictors, less spillover or more texts")
        same = columns.std(0) <= 1e-12 * (1 + abs(columns.mean(0)))
        if same.any():
            why, place = "is the same at every word that is left", int(same.argmax())
        else:
            # what is left of each column beside those before it
            left = abs(np.diag(np.linalg.qr(_standardised(columns), mode="r"))) / np.sqrt(count)
            if (left >= _SAME).all():
                return
            why, place = "is a sum of the predictors before it, and has no coefficient", int((left < _SAME).argmax())
        field, way = ("baseline", "Leave it out") if place < len(self._names) else ("surprisal", "Leave the run out")
        raise InputError(field, names[place], why, way)

    def _sums(self, columns: Array) -> _Sums:
        return _Sums(self.times, np.column_stack([_standardised(columns), self._values]), self.folds)

    def _coefficients(self, sums: _Sums, columns: Array, names: Sequence[str]) -> list[Coefficient]:
        """Return the intercept and the coefficients of all columns, fit on all folds."""
        cross, groups = sums.cross.sum(0), sums.groups.sum(0)
        fit = _fit(cross, groups, np.array(_theta(cross, groups)))
        means, scale = columns.mean(0), columns.std(0)
        # of standardised columns to those of the table: β_j / s_j, and β_0 − Σ_j β_j m_j / s_j
        turn = np.diag(np.concatenate([[1.0], 1 / scale]))
        turn[0, 1:] = -means / scale
        values = self._spread * turn @ fit.beta
        values[0] += self._mean
        errors = self._spread * np.sqrt(np.diag(turn @ fit.inverse @ turn.T) * fit.variance)
        rows = zip(("(Intercept)", *names), values.tolist(), errors.tolist(), strict=True)
        return [Coefficient(*row) for row in rows]


def _standardised(columns: Array) -> Array:
    return np.asarray((columns - columns.mean(0)) / columns.std(0))


# --- sums by item, and fits of them ---


class _Sums:
    """Cross products of columns z = (1, x, y) by item, (I, q, q), and their sums by item and subject, (I, G, q)."""

    def __init__(self, times: Times, columns: Array, folds: Counts) -> None:
        z = np.column_stack([np.ones(len(columns)), columns])
        items, width = len(folds), z.shape[1]
        rows = np.split(np.argsort(times.items, kind="stable"), np.cumsum(np.bincount(times.items, minlength=items)))
        self.cross = np.stack([z[part].T @ z[part] for part in rows[:items]])
        subjects = 0 if times.subjects is None else int(times.subjects.max()) + 1
        self.groups = np.zeros((items, subjects, width))
        if times.subjects is not None:
            np.add.at(self.groups, (times.items, times.subjects), z)
        self._of = [np.flatnonzero(folds == fold) for fold in range(int(folds.max()) + 1)]

    def delta(self, few: Sequence[int], all_: Sequence[int], *, inside: bool = False) -> float:
        """Return Δ of the columns `all_` over those of `few`; `inside`: no fold is held out."""
        return float(self._deltas(few, all_, np.ones((1, len(self.cross))), inside)[0])

    def drawn_deltas(self, few: Sequence[int], all_: Sequence[int], drawn: Array) -> Array:
        """Return Δ (D,) of draws (D, I), how often each item was drawn."""
        size = len(self._of) * (self.cross[0].size + self.groups[0].size)
        parts = np.array_split(drawn, max(1, len(drawn) * size // _HELD))
        return np.concatenate([self._deltas(few, all_, part) for part in parts])

    def _deltas(self, few: Sequence[int], all_: Sequence[int], drawn: Array, inside: bool = False) -> Array:
        cross, groups = self._by_fold(self.cross, drawn), self._by_fold(self.groups, drawn)
        likelihoods = []
        for columns in (few, all_):
            at = [*columns, self.cross.shape[-1] - 1]
            thetas = np.array(self._thetas(at))
            likelihoods.append(_likelihood(cross[..., at, :][..., at], groups[..., at], thetas, inside))
        return np.asarray((likelihoods[1] - likelihoods[0]) / cross[..., 0, 0].sum(1))

    def _by_fold(self, sums: Array, drawn: Array) -> Array:
        """Sum (I, …) of drawn items over each fold, (D, F, …)."""
        parts = [drawn[:, items] @ sums[items].reshape(len(items), -1) for items in self._of]
        return np.stack(parts, 1).reshape(len(drawn), len(parts), *sums.shape[1:])

    def _thetas(self, at: Sequence[int]) -> list[float]:
        """Return θ of the folds other than each."""
        cross, groups = self.cross.sum(0), self.groups.sum(0)
        others = [(cross - self.cross[items].sum(0), groups - self.groups[items].sum(0)) for items in self._of]
        return [_theta(c[np.ix_(at, at)], g[:, at]) for c, g in others]


@dataclass(frozen=True, eq=False)
class _Fit:
    """A fit on sums (…, q, q) and (…, G, q) of p = q − 1 columns and the times."""

    beta: Array  # (…, p)
    variance: Array  # (…), σ²
    blups: Array  # (…, G), b
    inverse: Array  # (…, p, p) of X'V⁻¹X


def _fit(cross: Array, groups: Array, theta: Array) -> _Fit:
    weights = theta[..., None] / (1 + theta[..., None] * groups[..., 0])  # V⁻¹ = I − Σ_s w_s 1 1'
    whitened = cross - np.swapaxes(groups * weights[..., None], -1, -2) @ groups
    width = whitened.shape[-1] - 1
    inverse = np.linalg.inv(whitened[..., :-1, :-1] + _RIDGE * np.eye(width))
    beta = (inverse @ whitened[..., :-1, -1:])[..., 0]
    residual = whitened[..., -1, -1] - (beta * whitened[..., :-1, -1]).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):  # draws may hold one item alone
        variance = residual / (cross[..., 0, 0] - width)
    blups = weights * (groups @ _residual(beta))[..., 0]
    return _Fit(beta, np.where(variance > 0, variance, np.nan), blups, np.asarray(inverse))


def _residual(beta: Array) -> Array:
    """Return (−β, 1) as columns (…, q, 1), which turns z into residuals."""
    return np.concatenate([-beta, np.ones_like(beta[..., :1])], -1)[..., None]


def _likelihood(cross: Array, groups: Array, theta: Array, inside: bool) -> Array:
    """Return the log-likelihood (D,) of all folds (D, F, …), each under the fit of the others or, `inside`, of all."""
    train, train_groups = (sums.sum(1, keepdims=True) - sums * (not inside) for sums in (cross, groups))
    fit = _fit(train, train_groups, theta)
    turn = _residual(fit.beta)
    squares = (np.swapaxes(turn, -1, -2) @ cross @ turn)[..., 0, 0]
    squares += (fit.blups * (fit.blups * groups[..., 0] - 2 * (groups @ turn)[..., 0])).sum(-1)
    return np.asarray(-0.5 * (cross[..., 0, 0] * np.log(2 * np.pi * fit.variance) + squares / fit.variance).sum(-1))


def _theta(cross: Array, groups: Array) -> float:
    """Return θ of REML, the variance of subjects over that of the rest; 0 without subjects."""
    if len(groups) == 0:
        return 0.0
    low, high = -14.0, 7.0  # of log θ
    for _ in range(6):  # each search cuts the interval to a tenth: 2e-5 of θ at last
        grid = np.linspace(low, high, 21)
        at = int(np.argmin([_deviance(cross, groups, theta) for theta in np.exp(grid)]))
        low, high = grid[max(at - 1, 0)], grid[min(at + 1, 20)]
    best = float(np.exp((low + high) / 2))
    return best if _deviance(cross, groups, best) < _deviance(cross, groups, 0.0) else 0.0


def _deviance(cross: Array, groups: Array, theta: float) -> float:
    """Return −2 times the restricted log-likelihood, but for a constant."""
    fit = _fit(cross, groups, np.array(theta))
    rest = cross[0, 0] - len(fit.beta)
    levels = np.log1p(theta * groups[:, 0]).sum()
    return float(levels - np.linalg.slogdet(fit.inverse)[1] + rest * np.log(fit.variance))


# --- BabyLM ---


def partial_r2(response: Array, baseline: Array, added: Array) -> float:
    """Return 100 (R² − R²_0) / (1 − R²_0), as the reading task of BabyLM scores a model (Charpentier et al., 2025).

    R²_0 is of ordinary least squares on the columns of the baseline (N, p) and the products of any two of them, and R²
    is with the column `added` (N,), too; rows with NaN are left out. Eye tracking: the mean over RTfirstfix,
    RTfirstpass, RTgopast and RTrightbound, with the baseline Subtlex_log10, length and context_length. Self-paced
    reading: self_paced_reading_time, whose baseline has prev_length and the surprisal of the word before, too. Nothing
    is held out.
    """
    rows = ~np.isnan(np.column_stack([response, baseline, added])).any(1)
    y, x = response[rows], baseline[rows]
    products = [x[:, i] * x[:, j] for i, j in combinations(range(x.shape[1]), 2)]
    few = np.column_stack([np.ones(len(y)), _standardised(np.column_stack([x, *products]))])
    total = float(((y - y.mean()) ** 2).sum())
    r2 = [1 - _squares(y, columns) / total for columns in (few, np.column_stack([few, added[rows]]))]
    return 100 * (r2[1] - r2[0]) / (1 - r2[0])


def _squares(y: Array, columns: NDArray[np.float64]) -> float:
    beta = np.linalg.lstsq(columns, y, rcond=None)[0]
    return float(((y - columns @ beta) ** 2).sum())


# --- R ---

SCRIPT = "reading.R"
"""Fits the same models with `lm` or lme4."""
COLUMNS = ("time", "item", "subject", "fold")
"""Of the readings for R, beside predictors."""


def write_r(
    folder: Path,
    models: NestedModels,
    items: Sequence[str],
    subjects: Sequence[str],
    baseline: Mapping[str, Array],
    surprisals: Mapping[str, Array],
) -> None:
    """Write N times and their predictors as `readings.csv`, and the script.

    Args:
        folder: to make, or an empty one.
        models: those of the times.
        items: the text of each time.
        subjects: its reader; of means there are none.
        baseline: columns (N,) by name.
        surprisals: bits of each run, (N, K + 1).
    """
    columns: dict[str, Sequence[object]] = {"time": models.times.values.tolist(), "item": items}
    columns |= {"subject": [f"s{name}" for name in subjects]} if subjects else {}
    columns |= {"fold": (models.folds[models.times.items] + 1).tolist()}
    columns |= {name: column.tolist() for name, column in baseline.items()}
    for run, values in surprisals.items():
        columns |= {f"surprisal{f'_prev{lag}' * (lag > 0)}:{run}": x.tolist() for lag, x in enumerate(values.T)}
    folder.mkdir(exist_ok=True)
    lines = [cells_line(columns, ","), *(cells_line(row, ",") for row in zip(*columns.values(), strict=True))]
    write_whole(folder / "readings.csv", "".join(lines).encode())
    write_whole(folder / SCRIPT, Path(__file__).with_name(SCRIPT).read_bytes())
