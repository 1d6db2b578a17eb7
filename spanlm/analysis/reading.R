# The models of `spanlm reading`, fit to readings.csv: Rscript reading.R
#
# A row is a time: the mean of a word over readers, or, with a column subject, one reading. Columns surprisal:RUN are
# bits of the word by a run, surprisal_prev1:RUN of the word before; all others are the baseline's.
# Writes coefficients.csv: of each run, all coefficients, and Δ, the gain in log-likelihood of times in other folds.

data <- read.csv("readings.csv", check.names = FALSE)
random <- "subject" %in% names(data)
for (name in intersect(c("item", "subject"), names(data))) data[[name]] <- factor(data[[name]])
of_runs <- grep("^surprisal(_prev[0-9]+)?:", names(data), value = TRUE)
runs <- unique(sub("^[^:]*:", "", of_runs))
baseline <- setdiff(names(data), c("time", "item", "subject", "fold", of_runs))
surprisal_of <- function(run) of_runs[sub("^[^:]*:", "", of_runs) == run]

formula_of <- function(terms) reformulate(c("1", terms), "time")
quoted <- function(names) sprintf("`%s`", names)

fit <- function(names, rows) {
  if (random) lme4::lmer(formula_of(c(quoted(names), "(1 | subject)")), rows, REML = TRUE)
  else lm(formula_of(quoted(names)), rows)
}

held_out <- function(names) {
  mean(unlist(lapply(unique(data$fold), function(fold) {
    model <- fit(names, data[data$fold != fold, ])
    rows <- data[data$fold == fold, ]
    dnorm(rows$time, predict(model, rows, allow.new.levels = TRUE), sigma(model), log = TRUE)
  })))
}

without <- held_out(baseline)
coefficients <- do.call(rbind, lapply(runs, function(run) {
  names <- c(baseline, surprisal_of(run))
  estimates <- coef(summary(fit(names, data)))
  data.frame(run = run, name = sub(":.*", "", gsub("`", "", rownames(estimates))), value = estimates[, "Estimate"],
             error = estimates[, "Std. Error"], delta = held_out(names) - without, row.names = NULL)
}))
write.csv(coefficients, "coefficients.csv", row.names = FALSE)
coefficients

# is a line enough? a smooth curve of each run's surprisal of the word; mgcv takes no names in quotation marks
plain <- setNames(data, make.names(names(data)))
if (requireNamespace("mgcv", quietly = TRUE)) for (run in runs) {
  s <- mgcv::s
  names <- make.names(surprisal_of(run))
  terms <- c(sprintf("s(%s)", names[1]), make.names(baseline), names[-1], if (random) "s(subject, bs = 're')")
  model <- mgcv::bam(formula_of(terms), data = plain)
  cat(sprintf("%s: a curve of %.2f degrees of freedom (1: a line)\n", run, summary(model)$edf[1]))
}
