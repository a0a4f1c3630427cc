#' Everyday tables: cross tables, histograms, quantiles, summaries
#'
#' Each table costs its epsilon once. Every number has an interval that contains the exact number with
#' probability `level`. `quantiles()` counts twice: in equal bins, and in finer bins around the
#' quantiles. `summary()` divides epsilon: one part for the number of rows, four for the counts of a
#' categorical column, three for the mean of a number and five for its quartiles.
#'
#' @param x,object A handle, or one part.
#' @param ... Columns by name, or specs; a number needs [cuts()]. For `summary()`, the columns.
#' @param column A column's name; for `quantiles()` a number or a date.
#' @param bins The number of bins for a number, of about equal width.
#' @param by Groups that are counted separately: a column's name, or a spec.
#' @param shares Between 0 and 1: 0.5 is the median.
#' @param margins Whether to add the sums over each column, called `"All"`.
#' @param epsilon The cost of the whole table.
#' @param reuse,level As in [noisy_count()].
#' @return A data frame with `value`, `low` and `high` in each row, which `plot()` draws.
#' @examples
#' \dontrun{
#' crosstab(people, "sex", "job", epsilon = 0.1, margins = TRUE)
#' plot(histogram(people, "age", bins = 8, epsilon = 0.1))
#' quantiles(people, "age", c(0.1, 0.5, 0.9), epsilon = 0.1)
#' summary(people, "age", "job", epsilon = 0.3)
#' }
#' @name tables
NULL

#' @rdname tables
#' @export
crosstab <- function(x, ..., epsilon, margins = FALSE, reuse = FALSE, level = 0.95) {
  asked <- partition(x, do.call(cross, lapply(list(...), axis_of)))
  cells <- noisy_count(asked, epsilon, reuse, level)
  if (!isTRUE(margins)) {
    return(cells)
  }
  keys <- setdiff(names(cells), c("value", "low", "high"))
  sums <- lapply(utils::tail(subsets(length(keys)), -1), function(kept) margin(cells, keys, kept, level))
  structure(do.call(rbind, c(list(as.data.frame(unclass(cells), stringsAsFactors = FALSE)), sums)),
    epsilon = attr(cells, "epsilon"), scale = attr(cells, "scale"), class = class(cells)
  )
}

# Which keys the table and each margin keep, most first.
subsets <- function(n) {
  kept <- lapply(seq_len(2^n) - 1, function(mask) which(bitwAnd(mask, 2^(seq_len(n) - 1)) > 0))
  kept[order(-lengths(kept))]
}

# The sums of a table's cells that keep some of its keys.
margin <- function(cells, keys, kept, level) {
  label <- function(key) ifelse(is.na(cells[[key]]), "NA", as.character(cells[[key]]))
  id <- do.call(paste, c(list(rep("", nrow(cells))), lapply(keys[kept], label), sep = "\r"))
  first <- !duplicated(id)
  rows <- as.data.frame(unclass(cells), stringsAsFactors = FALSE)[first, ]
  rows[setdiff(keys, keys[kept])] <- "All"
  rows$value <- vapply(id[first], function(one) sum(cells$value[id == one]), 0, USE.NAMES = FALSE)
  half <- sum_interval(rep(1, sum(id == id[1])), attr(cells, "scale"), level)
  transform(rows, low = value - half, high = value + half)
}

#' @rdname tables
#' @export
histogram <- function(x, column, bins = 10, by = NULL, epsilon, reuse = FALSE, level = 0.95) {
  declared <- column_of(session_of(x), column)
  if (!is.null(declared$values) && !missing(bins)) refuse("`", column, "` is categorical; it takes no `bins`.")
  spec <- if (is.null(declared$values)) even_cuts(declared, column, bins) else values(column)
  asked <- do.call(partition, c(list(x), if (!is.null(by)) list(axis_of(by)), list(spec)))
  noisy_count(asked, epsilon, reuse, level)
}

#' @rdname tables
#' @export
quantiles <- function(x, column, shares = c(0.25, 0.5, 0.75), epsilon, reuse = FALSE, level = 0.95) {
  declared <- column_of(session_of(x), column)
  require_level(level)
  if (!is.null(declared$values)) refuse("`", column, "` is categorical; it has no quantiles.")
  if (!is.numeric(shares) || !all(shares > 0 & shares < 1)) refuse("`shares` must be between 0 and 1.")
  grid <- grid_of(declared)
  halved <- divided(x, epsilon, c(1, 1), reuse, "quantiles")[1]
  # Bins of whole cells, then cells of the bins in which the first counts see a quantile.
  coarse <- unique(round(seq(0, grid$cells, length.out = min(BINS, grid$cells) + 1)))
  counts <- counted(x, declared, column, coarse, halved, reuse)
  near <- unlist(lapply(shares, function(share) held(counts, share, 1 - (1 - level) / 10)))
  fine <- unlist(lapply(split(near, cumsum(c(1, diff(near) != 1))), function(bin) {
    ends <- coarse[c(min(bin), max(bin) + 1)]
    round(seq(ends[1], ends[2], length.out = min(BINS, diff(ends)) + 1))
  }))
  edges <- sort(unique(c(0, fine, grid$cells)))
  counts <- counted(x, declared, column, edges, halved, reuse)
  rows <- lapply(shares, function(share) {
    bins <- held(counts, share, level)
    at <- sum(cumsum(counts$value)[seq_len(length(counts$value) - 1)] < share * sum(counts$value)) + 1
    at <- min(max(at, min(bins)), max(bins))
    cell <- c((edges[at] + edges[at + 1] - 1) / 2, edges[min(bins)], edges[max(bins) + 1] - 1)
    shown <- number_value(declared, grid$origin + grid$width * cell)
    data.frame(column = column, statistic = paste0(format(100 * share), " %"), value = shown[1], low = shown[2], high = shown[3])
  })
  structure(do.call(rbind, rows), epsilon = 2 * halved, class = c("pinq_answer", "data.frame"))
}

BINS <- 64

# Noisy counts between edges, which are numbers of cells; a missing value is in none.
counted <- function(x, declared, column, edges, epsilon, reuse) {
  grid <- grid_of(declared)
  inner <- edges[-c(1, length(edges))]
  points <- grid$lower + grid$width * inner
  asked <- partition(x, cuts(column, if (is_dated(declared)) number_text(declared, points) else points))
  answer <- noisy_count(asked, epsilon, reuse)
  list(value = answer$value[seq_len(length(edges) - 1)], scale = attr(answer, "scale"))
}

# The bins in which a quantile may lie: all but those that the counts contradict, on one side beyond
# what noise does with probability (1 - level) / 2.
held <- function(counts, share, level) {
  value <- counts$value
  n <- length(value)
  below <- c(0, cumsum(value))
  # Rows below an edge, less their share of all: negative before the quantile, positive behind it.
  excess <- below - share * below[n + 1]
  half <- vapply(0:n, function(edge) {
    weights <- c(rep(1 - share, edge), rep(-share, n - edge))
    sum_interval(weights, counts$scale, level)
  }, 0)
  kept <- which(excess[seq_len(n)] <= half[seq_len(n)] & excess[-1] >= -half[-1])
  if (!length(kept)) kept <- min(n, max(1, sum(excess[seq_len(n)] <= 0)))
  seq(min(kept), max(kept))
}

# Within what a weighted sum of independent discrete Laplace noises lies with probability `level`:
# their law by the Fourier transform, as miners/tables/columns.py has it.
sum_interval <- function(weights, scale, level, span = 20, points = 2048) {
  deviation <- sqrt(2 * sum((weights * scale)^2))
  if (deviation == 0) {
    return(0)
  }
  unit <- table(abs(weights) * scale / deviation)
  rates <- c(0:(points / 2), -((points / 2 - 1):1)) * pi / span
  logs <- rep(0, points)
  for (own in names(unit)) logs <- logs + unit[[own]] * log1p((as.numeric(own) * rates)^2)
  law <- Re(stats::fft(exp(-logs), inverse = TRUE))[seq_len(points / 2)] / points
  steps <- sum(2 * cumsum(law) - law[1] < level) + 1
  steps * (2 * span / points) * deviation + max(abs(weights)) / 2
}

even_cuts <- function(declared, column, bins) {
  bins <- as.numeric(whole(bins, "bins", 2, 10000))
  grid <- grid_of(declared)
  firsts <- unique(ceiling(seq_len(bins - 1) * grid$cells / bins))
  points <- grid$lower + grid$width * firsts[firsts > 0 & firsts < grid$cells]
  cuts(column, if (is_dated(declared)) number_text(declared, points) else points)
}

# Parts of epsilon by weight, in whole billionths, so that their sum is never more. What the budget does not
# cover is refused before the first of them is spent, by the server, whose log names the act.
divided <- function(x, epsilon, weights, reuse, act) {
  left <- if (isTRUE(reuse)) 0 else preview(x, "noisy_count", epsilon = epsilon)$remaining
  if (left < 0) {
    attempted <- question(x, "noisy_count", epsilon)
    attempted$act <- list(name = act, run = substr(new_id(), 1, 8))
    tryCatch(send(session_of(x), "POST", "/attempt", to_json(attempted)), pinq_error = function(error) {
      if (inherits(error, "BudgetExceeded")) stop(error) # an older server logs refused queries alone
    })
    asked <- as.numeric(loss(epsilon))
    text <- paste0("This would cost epsilon ", asked, ", ", format(-left), " more than what remains. Nothing was spent.")
    stop(condition("budget", text, list(asked = asked, remaining = asked + left)))
  }
  floor(round(as.numeric(loss(epsilon)) * 1e9) * weights / sum(weights)) / 1e9
}

axis_of <- function(x) if (inherits(x, "pinq_spec")) x else values(name_of(x))

#' @rdname tables
#' @export
summary.pinq_part <- function(object, ..., epsilon, reuse = FALSE, level = 0.95) {
  if (missing(epsilon)) lesson(object, "describe columns", "summary(h, \"{number}\", epsilon = 0.3)")
  columns <- unlist(list(...))
  declared <- session_of(object)$columns
  if (is.null(columns)) columns <- names(declared)
  numeric <- vapply(columns, function(name) is.null(column_of(session_of(object), name)$values), NA)
  weights <- c(1, unlist(lapply(numeric, function(number) if (number) c(3, 5) else 4)))
  shares <- divided(object, epsilon, weights, reuse, "summary")
  spent <- 1
  part <- function() shares[spent <<- spent + 1]
  row <- function(column, statistic, of, answer) {
    of <- if (is.null(of)) NA else as.character(of)
    shown <- function(number) if (inherits(number, "Date")) format(number) else format(number, digits = 6, trim = TRUE)
    data.frame(
      column = column, statistic = statistic, of = of,
      value = shown(answer$value), low = shown(answer$low), high = shown(answer$high)
    )
  }
  described <- lapply(columns, function(name) {
    if (!is.null(declared[[name]]$values)) {
      counts <- noisy_count(partition(object, values(name)), part(), reuse, level)
      return(row(name, "count", counts[[name]], counts))
    }
    rbind(
      row(name, "mean", NULL, noisy_avg(object, name, part(), reuse, level)),
      { found <- quantiles(object, name, epsilon = part(), reuse = reuse, level = level)
        row(name, found$statistic, NULL, found) }
    )
  })
  all_rows <- row(NA, "rows", NULL, noisy_count(object, shares[1], reuse, level))
  structure(do.call(rbind, c(list(all_rows), described)), epsilon = epsilon, class = c("pinq_answer", "data.frame"))
}

#' @export
plot.pinq_answer <- function(x, ...) {
  if (!is.numeric(x$value)) refuse("only numbers of one unit can be drawn; take them apart first.")
  keys <- setdiff(names(x), c("value", "low", "high"))
  named <- do.call(paste, lapply(keys, function(key) as.character(x[[key]])))
  ends <- range(0, x$low, x$high, finite = TRUE)
  bars <- graphics::barplot(x$value, names.arg = named, las = 2, ylim = ends, ...)
  graphics::segments(bars, x$low, bars, x$high)
  invisible(bars)
}
