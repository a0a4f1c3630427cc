#' Ask a private table for noisy answers
#'
#' `connect()` opens a handle. `noisy_count()`, `noisy_sum()`, `noisy_avg()` and `exp_mech()` ask it,
#' `partition()` cuts it into disjoint parts first, and `part()` takes one of them. All answers are
#' data frames: a row for each part, with `value` and the ends `low` and `high` of an interval that
#' holds the exact number with probability .95. `budget()`, `preview()` and `history()` cost nothing.
#'
#' @keywords internal
"_PACKAGE"
