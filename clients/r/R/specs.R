# What cuts a table into parts, and what `exp_mech` chooses from. Each is a named list, as it is sent.

spec <- function(kind, ..., class = "pinq_spec") structure(list(..., kind = kind), class = class)

#' Specs: groupings that split a table into disjoint parts
#'
#' `values()` has a part for each declared value of a column (for each grid cell of a number),
#' `cuts()` one for each interval between points, `groups()` one for each listed group of values
#' (rows in no group are in no part), `calendar()` one for each year, quarter, month or weekday of
#' dates, `shards()` random disjoint parts, `cross()` every combination.
#' If a column may have missing values, they are a separate part, named `NA`.
#'
#' @param column A column's name.
#' @param points Increasing numbers, or dates as text, `Date` or `POSIXct` (in UTC); values below the
#'   first are the first part.
#' @param period `"year"`, `"quarter"`, `"month"` or `"weekday"`.
#' @param groups A list of vectors of values; `NA` names the missing value.
#' @param count The number of parts.
#' @param key Another key gives other parts.
#' @param ... Specs.
#' @return A spec, for `partition()` and `exp_mech()`.
#' @examples
#' values("sex")
#' cuts("age", c(30, 45, 60))
#' groups("job", list("clerk", c("nurse", "smith")))
#' cross(values("sex"), cuts("age", 40))
#' @name specs
NULL

#' @rdname specs
#' @export
values <- function(column) spec("values", column = name_of(column))

#' @rdname specs
#' @export
cuts <- function(column, points) {
  if (inherits(points, "Date")) points <- format(points)
  if (inherits(points, "POSIXct")) points <- format(points, "%Y-%m-%d %H:%M", tz = "UTC")
  dated <- is.character(points) && all(grepl("^[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9:]+)?$", points))
  known <- dated || (is.numeric(points) && all(is.finite(points)))
  if (!length(points) || !known) refuse("`points` must be finite numbers, or dates.")
  spec("cuts", column = name_of(column), points = as.list(if (is.numeric(points)) as.double(points) else points))
}

#' @rdname specs
#' @export
calendar <- function(column, period) {
  if (!isTRUE(period %in% c("year", "quarter", "month", "weekday"))) {
    refuse("`period` must be one of year, quarter, month, weekday.")
  }
  spec("calendar", column = name_of(column), period = period)
}

#' @rdname specs
#' @export
groups <- function(column, groups) {
  plain <- function(value) if (is.na(value)) NULL else if (is.factor(value)) as.character(value) else value
  spec("groups", column = name_of(column), groups = lapply(unname(as.list(groups)), function(group) {
    lapply(unname(as.list(group)), plain)
  }))
}

#' @rdname specs
#' @export
shards <- function(count, key = 0) {
  spec("shards", count = whole(count, "count", 1, 65535), key = whole(key, "key", 0, 2^53))
}

#' @rdname specs
#' @export
cross <- function(...) spec("cross", specs = flat(list(...)))

#' Families: many candidates in one, for `exp_mech`
#'
#' `any_cut()` has every cut of a numeric column at a grid point, `any_grouping()` the ways to divide a
#' column's values into two groups, `any_cross()` the crosses of every `size` of some specs.
#'
#' @inheritParams specs
#' @param seed Seed of the groupings that are drawn if there are too many; public.
#' @param size The number of specs in a candidate.
#' @return A family, for `exp_mech()`.
#' @name families
NULL

#' @rdname families
#' @export
any_cut <- function(column) spec("any_cut", column = name_of(column), class = "pinq_family")

#' @rdname families
#' @export
any_grouping <- function(column, seed = 0) {
  spec("any_grouping", column = name_of(column), seed = whole(seed, "seed", -2^53, 2^53), class = "pinq_family")
}

#' @rdname families
#' @export
any_cross <- function(..., size) {
  specs <- flat(list(...))
  spec("any_cross", specs = specs, size = whole(size, "size", 1, max(1, length(specs))), class = "pinq_family")
}

#' Scores: the quality of a candidate
#'
#' For a category: `info_gain()`, `gini()`, `max_class()` and `mutual_information()` (which takes
#' `cuts()` of a number as target, too). For a number: `squared_error()` and `absolute_error()`.
#' `balance()` prefers a given proportion of the rows on the left, so that
#' `exp_mech(x, any_cut("age"), balance(), epsilon = 0.1)` is a median. `class_count()` chooses the
#' most frequent value of a category and needs no candidates.
#'
#' @param target The column to predict.
#' @param share Between 0 and 1, both excluded.
#' @return A score, for `exp_mech()`.
#' @name scores
NULL

score <- function(kind, ...) structure(c(Filter(Negate(is.null), list(...)), kind = kind), class = "pinq_score")

#' @rdname scores
#' @export
info_gain <- function(target) score("info_gain", target = name_of(target))

#' @rdname scores
#' @export
gini <- function(target) score("gini", target = name_of(target))

#' @rdname scores
#' @export
max_class <- function(target) score("max_class", target = name_of(target))

#' @rdname scores
#' @export
mutual_information <- function(target) {
  target <- if (inherits(target, "pinq_spec")) plain(target) else name_of(target)
  structure(list(target = target, kind = "mutual_information"), class = "pinq_score")
}

#' @rdname scores
#' @export
squared_error <- function(target) score("squared_error", target = name_of(target))

#' @rdname scores
#' @export
absolute_error <- function(target) score("absolute_error", target = name_of(target))

#' @rdname scores
#' @export
balance <- function(share = NULL) score("balance", share = share)

#' @rdname scores
#' @export
class_count <- function(target) score("class_count", target = name_of(target))

name_of <- function(column) {
  if (!is.character(column) || length(column) != 1 || is.na(column)) refuse("`column` must be the name of a column.")
  column
}

# One-axis specs, those of a cross included, without their classes.
flat <- function(specs) {
  known <- vapply(specs, inherits, logical(1), "pinq_spec")
  if (!length(specs) || !all(known)) refuse("specs are made by values(), cuts(), groups(), shards() and cross().")
  do.call(c, lapply(specs, function(one) if (one$kind == "cross") one$specs else list(plain(one))))
}

plain <- function(x) unclass(x)

as_spec <- function(wire) structure(wire, class = "pinq_spec")

#' @export
format.pinq_spec <- function(x, ...) {
  short <- function(member) format(as_spec(member))
  parts <- switch(x$kind,
    cuts = paste0(", c(", paste(cut_text(unlist(x$points)), collapse = ", "), ")"),
    calendar = paste0(", \"", x$period, "\""),
    groups = paste0(", ", paste0("{", vapply(x$groups, group_text, ""), "}", collapse = ", ")),
    ""
  )
  switch(x$kind,
    cross = paste0("cross(", paste(vapply(x$specs, short, ""), collapse = ", "), ")"),
    shards = paste0("shards(", x$count, ")"),
    paste0(x$kind, "(\"", x$column, "\"", parts, ")")
  )
}

#' @export
print.pinq_spec <- function(x, ...) {
  cat(format(x), "\n", sep = "")
  invisible(x)
}

group_text <- function(group) {
  paste(vapply(group, function(v) if (is.null(v)) "missing" else label_text(v), ""), collapse = ", ")
}

# The text of a value: true, and never 1e+05.
label_text <- function(value) {
  if (is.logical(value)) {
    return(tolower(as.character(value)))
  }
  if (is.numeric(value)) format(value, scientific = FALSE, digits = 15, trim = TRUE) else as.character(value)
}

spells_number <- function(labels) {
  is.numeric(labels) | grepl("^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$", labels)
}

# The place of a value among labels, as Python finds it: by its text, else a number by the only label that spells it.
# NA where it is none of them.
place_of <- function(labels, value) {
  if (length(value) != 1) {
    return(NA)
  }
  if (is.na(value)) {
    return(match(NA, labels))
  }
  texts <- vapply(labels, label_text, "")
  texts[is.na(labels)] <- NA
  found <- match(label_text(value), texts)
  if (is.na(found) && is.numeric(value)) {
    spelled <- which(spells_number(texts))
    equal <- spelled[as.numeric(texts[spelled]) == value]
    found <- if (length(equal) == 1) equal else NA
  }
  found
}

cut_text <- function(points) if (is.numeric(points)) format_number(points) else paste0("\"", points, "\"")

format_number <- function(x) formatC(x, digits = 10, format = "fg", width = 1)
