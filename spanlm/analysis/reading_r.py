"""The readings of a table and an R script that fits the same models to them, by `lm` or lme4, and a curve by mgcv."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from spanlm.analysis.export import write_whole
from spanlm.analysis.reading import NestedModels
from spanlm.scoring.resampling import Array
from spanlm.store.plain import cells_line

TABLE, SCRIPT = "readings.csv", "reading.R"

_SCRIPT = """\
# The models of `spanlm reading`: Rscript {script}
# Times are of column time; surprisal is in bits, _prev1 that of the word before. Writes coefficients.csv.
data <- read.csv("{table}", check.names = FALSE)
for (name in intersect(c("item", "subject"), names(data))) data[[name]] <- factor(data[[name]])
baseline <- c({baseline})
surprisal <- list({runs})

formula_of <- function(names) reformulate(c("1", paste0("`", names, "`"){random}), "time")
fit <- function(names, rows) {fit}
log_likelihood <- function(model, rows) sum(dnorm(rows$time, predict(model, rows), sigma(model), log = TRUE))

held_out <- function(names) {{
  sum(sapply(unique(data$fold), function(fold) {{
    log_likelihood(fit(names, data[data$fold != fold, ]), data[data$fold == fold, ])
  }})) / nrow(data)
}}

without <- held_out(baseline)
rows <- list()
for (run in names(surprisal)) {{
  model <- fit(c(baseline, surprisal[[run]]), data)
  estimates <- coef(summary(model))
  rows[[run]] <- data.frame(run = run, name = gsub("`", "", rownames(estimates)), value = estimates[, "Estimate"],
                            error = estimates[, "Std. Error"],
                            delta = held_out(c(baseline, surprisal[[run]])) - without)
}}
options(digits = 7)
coefficients <- do.call(rbind, rows)
rownames(coefficients) <- NULL
print(coefficients)
write.csv(coefficients, "coefficients.csv", row.names = FALSE)

# is a line enough? a smooth curve of each run's surprisal
if (requireNamespace("mgcv", quietly = TRUE)) for (run in names(surprisal)) {{
  s <- mgcv::s
  curve <- sprintf("s(`%s`)", surprisal[[run]][1])
  others <- paste0("`", c(baseline, surprisal[[run]][-1]), "`")
  model <- mgcv::bam(reformulate(c(curve, others{smooth}), "time"), data = data)
  freedom <- round(summary(model)$edf[1], 2)
  cat("\\n", run, ": smooth of surprisal, ", freedom, " degrees of freedom (1: a line)\\n", sep = "")
}}
"""
_MEANS = {"random": "", "fit": "lm(formula_of(names), rows)", "smooth": ""}
_RANDOM = {
    "random": ', "(1 | subject)"',
    "fit": "lme4::lmer(formula_of(names), rows, REML = TRUE)",
    "smooth": ', "s(subject, bs = \\"re\\")"',
}


def write_r(
    folder: Path,
    models: NestedModels,
    labels: tuple[Sequence[str], Sequence[str]],
    baseline: Mapping[str, Array],
    surprisals: Mapping[str, Array],
) -> None:
    """Write the N times and their predictors, and the script, to a folder.

    `labels` are the item and the subject of each; `baseline` has columns (N,), and `surprisals` those of each run,
    (N, K + 1).
    """
    times, random = models.times, models.times.subjects is not None
    columns: dict[str, Sequence[object]] = {"time": times.values.tolist(), "item": labels[0]}
    columns |= {"subject": [f"s{name}" for name in labels[1]]} if random else {}
    columns |= {"fold": (models.folds[times.items] + 1).tolist()}
    columns |= {name: column.tolist() for name, column in baseline.items()}
    names: dict[str, list[str]] = {}
    for number, (run, values) in enumerate(surprisals.items(), 1):
        names[run] = [f"surprisal_{number}{f'_prev{lag}' * (lag > 0)}" for lag in range(values.shape[1])]
        columns |= dict(zip(names[run], values.T.tolist(), strict=True))
    folder.mkdir(exist_ok=True)
    rows = zip(*columns.values(), strict=True)
    write_whole(folder / TABLE, "".join([cells_line(columns, ","), *(cells_line(row, ",") for row in rows)]).encode())
    runs = ",\n  ".join(f"{json.dumps(run, ensure_ascii=False)} = {_vector(own)}" for run, own in names.items())
    parts = {"script": SCRIPT, "table": TABLE, "baseline": _vector([*baseline])[2:-1], "runs": f"\n  {runs}\n"}
    write_whole(folder / SCRIPT, _SCRIPT.format(**parts, **(_RANDOM if random else _MEANS)).encode())


def _vector(names: Sequence[str]) -> str:
    return f"c({', '.join(json.dumps(name, ensure_ascii=False) for name in names)})"
