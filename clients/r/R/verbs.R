#' Counts, sums and averages, with noise
#'
#' Each query is charged once for any number of parts, because they are disjoint. The charge comes
#' before the data is read.
#'
#' @param x A handle, or parts.
#' @param epsilon The cost of the query.
#' @param column A numeric column; for an average also one of dates, whose average is a date. Its
#'   values are clamped to the declared bounds; missing ones are left out.
#' @param reuse Whether to return the stored answer of an identical earlier query, at no cost.
#' @param level The probability with which `low` and `high` contain the exact number.
#' @return A data frame with a row for each part: a column for each spec, then `value`, `low` and
#'   `high`. Attributes: `epsilon` as it was charged, and `scale`, of the discrete Laplace noise, in
#'   the answer's units; for an average one scale for each part, by its rows.
#' @examples
#' \dontrun{
#' noisy_count(people, epsilon = 0.1)
#' noisy_avg(partition(people, values("sex")), "age", epsilon = 0.1)
#' }
#' @name verbs
NULL

#' @rdname verbs
#' @export
noisy_count <- function(x, epsilon, reuse = FALSE, level = 0.95) {
  numbers(x, question(x, "noisy_count", epsilon, reuse = reuse), level)
}

#' @rdname verbs
#' @export
noisy_sum <- function(x, column, epsilon, reuse = FALSE, level = 0.95) {
  numbers(x, question(x, "noisy_sum", epsilon, column = name_of(column), reuse = reuse), level)
}

#' @rdname verbs
#' @export
noisy_avg <- function(x, column, epsilon, reuse = FALSE, level = 0.95) {
  asked <- question(x, "noisy_avg", epsilon, column = name_of(column), reuse = reuse)
  declared <- column_of(session_of(x), column)
  grid <- grid_of(declared)
  answer <- numbers(x, asked, level, grid$origin + c(0, grid$width * (grid$cells - 1)))
  for (name in c("value", "low", "high")) answer[[name]] <- number_value(declared, answer[[name]])
  answer
}

#' Chooses a candidate for each part at random; a better score makes it more likely
#'
#' @inheritParams verbs
#' @param candidates A spec, a family or a list of them ([values()], [cuts()], [any_cut()], ...).
#'   None with [class_count()].
#' @param score A score: [info_gain()], [gini()], [balance()], ...
#' @param each Whether to choose a member of every candidate instead of one candidate; these choices
#'   divide epsilon evenly.
#' @return A data frame with a row for each part (with `each`: for each part and candidate): a column
#'   for each spec, then `choice`, the value or the spec as text. The attribute `specs` has the
#'   chosen specs, NULL if there was no candidate.
#' @examples
#' \dontrun{
#' exp_mech(people, list(any_cut("age"), values("job")), info_gain("income"), epsilon = 0.2)
#' exp_mech(people, any_cut("age"), balance(), epsilon = 0.1) # the median
#' }
#' @export
exp_mech <- function(x, candidates = list(), score, epsilon, each = FALSE, reuse = FALSE) {
  asked <- question(x, "exp_mech", epsilon, candidates = candidates, score = score, each = each, reuse = reuse)
  answer <- send(session_of(x), "POST", "/query", to_json(asked))
  chosen <- choices_of(session_of(x), asked, answer)
  rows <- part_labels(session_of(x), x$specs)
  rows <- rows[rep(seq_len(nrow(rows)), each = length(chosen$text) / nrow(rows)), , drop = FALSE]
  rows$choice <- chosen$text
  rownames(rows) <- NULL
  structure(rows, specs = chosen$specs, epsilon = as.numeric(answer$epsilon), class = c("pinq_answer", "data.frame"))
}

#' Returns the cost and the expected error of a query
#'
#' It costs nothing.
#'
#' @inheritParams exp_mech
#' @param verb `"noisy_count"`, `"noisy_sum"`, `"noisy_avg"` or `"exp_mech"`.
#' @param ... The arguments of the query, without the handle.
#' @return A list of class `pinq_preview`: `cost`, `remaining` (negative if the query would be refused),
#'   `error` in words, and `scale`.
#' @examples
#' \dontrun{
#' preview(people, "noisy_sum", column = "age", epsilon = 0.1)
#' }
#' @export
preview <- function(x, verb, ..., epsilon) {
  if (!verb %in% c("noisy_count", "noisy_sum", "noisy_avg", "exp_mech")) refuse("there is no verb '", verb, "'.")
  answer <- send(session_of(x), "POST", "/preview", to_json(question(x, verb, epsilon, ...)))
  structure(list(
    cost = as.numeric(answer$cost), remaining = as.numeric(answer$remaining),
    error = answer$error, scale = answer$scale
  ), class = "pinq_preview")
}

#' @export
print.pinq_preview <- function(x, ...) {
  left <- if (x$remaining >= 0) paste(x$remaining, "would remain") else paste("refused:", -x$remaining, "too much")
  cat("Costs epsilon ", x$cost, " (", left, "); ", x$error, "\n", sep = "")
  invisible(x)
}

question <- function(x, verb, epsilon, column = NULL, candidates = NULL, score = NULL, each = FALSE, reuse = FALSE) {
  asked <- list(id = new_id(), verb = verb, epsilon = loss(epsilon), parts = wire_parts(session_of(x), x))
  if (!is.null(column)) asked$column <- column
  if (verb == "exp_mech") {
    if (!inherits(score, "pinq_score")) refuse("`score` must be made by info_gain(), gini(), balance(), ...")
    asked$score <- plain(score)
    if (inherits(candidates, c("pinq_spec", "pinq_family"))) candidates <- list(candidates)
    if (!all(vapply(candidates, inherits, TRUE, c("pinq_spec", "pinq_family")))) {
      refuse("candidates are made by values(), cuts(), any_cut(), any_grouping() and the like.")
    }
    if (length(candidates)) asked$candidates <- list(lapply(unname(candidates), plain))
    if (isTRUE(each)) asked$each <- TRUE
  }
  if (!isTRUE(reuse) && !isFALSE(reuse)) refuse("`reuse` must be TRUE or FALSE.")
  if (reuse) asked$reuse <- TRUE
  asked
}

# Asked before the charge.
require_level <- function(level) {
  if (!is.numeric(level) || length(level) != 1 || !isTRUE(level > 0 && level < 1)) {
    refuse("`level` must be between 0 and 1, both excluded.")
  }
}

numbers <- function(x, asked, level, bounds = c(-Inf, Inf)) {
  require_level(level)
  session <- session_of(x)
  answer <- send(session, "POST", "/query", to_json(asked))
  half <- half_width(answer, level)
  rows <- part_labels(session, x$specs)
  rows$value <- values_of(answer$values)
  rows$low <- pmax(rows$value - half, bounds[1])
  rows$high <- pmin(rows$value + half, bounds[2])
  # What the noise of an average is follows the rows of each part.
  scale <- if (is.null(answer$rows)) answer$scale else answer$scale / pmax(values_of(answer$rows), 1)
  structure(rows, epsilon = as.numeric(answer$epsilon), scale = scale, class = c("pinq_answer", "data.frame"))
}

# Half of an interval's width. Of an average each of two bins lies within k of its exact sum with
# probability (1 + level) / 2, so the share lies within k / rows of the noisy one.
half_width <- function(answer, level) {
  if (is.null(answer$scale)) {
    return(NA_real_)
  }
  scale <- answer$scale / answer$grid
  if (is.null(answer$rows)) {
    return(laplace_interval(scale, level) * answer$grid)
  }
  rows <- values_of(answer$rows)
  ifelse(rows > 0, laplace_interval(scale, (1 + level) / 2) * answer$grid / rows, Inf)
}

# The smallest whole k such that discrete Laplace noise lies in [-k, k] with probability `level`.
laplace_interval <- function(scale, level) {
  p <- exp(-1 / scale)
  max(0, ceiling(-scale * log((1 - level) * (1 + p) / 2) - 1 - 1e-9))
}

# What was chosen: as text, and as specs.
choices_of <- function(session, asked, answer) {
  numbers <- values_of(answer$values)
  if (asked$score$kind == "class_count") {
    labels <- value_labels(column_of(session, asked$score$target))
    return(list(text = labels[numbers + 1], specs = NULL))
  }
  specs <- lapply(numbers, function(number) if (number < 0) NULL else as_spec(answer$chosen[[number + 1]]))
  list(text = vapply(specs, function(one) if (is.null(one)) NA_character_ else format(one), ""), specs = specs)
}

#' @export
print.pinq_answer <- function(x, ...) {
  print(as.data.frame(structure(x, class = "data.frame")), row.names = FALSE, ...)
  scale <- attr(x, "scale")
  noise <- if (!is.null(scale)) paste(", noise of scale", paste(unique(signif(range(scale), 3)), collapse = " to "))
  cat("epsilon ", attr(x, "epsilon"), noise, "\n", sep = "")
  invisible(x)
}
