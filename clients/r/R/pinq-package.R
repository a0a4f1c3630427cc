#' Queries of a private table, with noisy answers
#'
#' `connect()` opens a handle. `noisy_count()`, `noisy_sum()`, `noisy_avg()` and `exp_mech()` query it.
#' `partition()` splits it into disjoint parts, and `part()` selects one of them. All answers are
#' data frames: a row for each part, with `value` and the ends `low` and `high` of an interval that
#' contains the exact number with probability .95. `budget()`, `preview()` and `history()` cost nothing.
#'
#' @keywords internal
"_PACKAGE"
