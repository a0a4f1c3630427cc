#' Statistics of studies: survival curves, tests of independence, odds ratios
#'
#' Each is computed from one noisy table of counts, which costs `epsilon`. Intervals and p-values contain two
#' errors: rows differ from sample to sample, and each count has noise. Where counts are less than ten times
#' their noise, a test redraws rows and noise 1,000 times under the hypothesis of no effect, from a public
#' seed. Where rows are less than five times their noise, the statistic is missing, and a warning says so.
#' Rows with a missing value are left out.
#'
#' @param x A handle, or one part.
#' @param time The column of the time until the event or the end of observation: a number, or [cuts()].
#' @param event The column of the event. For an odds ratio it has two values.
#' @param by The groups: a column's name, or a spec.
#' @param a,b Two columns by name, or specs; a number needs [cuts()].
#' @param exposure The column of two groups.
#' @param observed The value of `event` that counts.
#' @param exposed The value of `exposure` of the first group.
#' @param intervals The number of intervals of the time, of equal width. Fewer are more exact.
#' @param epsilon The cost of all counts together.
#' @param reuse As in [noisy_count()].
#' @param level The confidence level of the intervals.
#' @param ... Further arguments of the plot.
#' @return A data frame with `value`, `low` and `high`: of the curves, of the odds ratio, or of the counts that
#'   `independence()` tests. Attributes: `test`, `statistic`, `df` and `p.value`; of survival curves also
#'   `at_risk`. `plot()` of survival curves draws steps, bands and numbers at risk.
#' @examples
#' \dontrun{
#' curves <- survival(people, "week", "arrest", by = "aid", observed = "yes", epsilon = 0.5)
#' plot(curves)
#' attr(curves, "p.value")
#' independence(people, "sex", "job", epsilon = 0.2)
#' odds_ratio(people, "income", "sex", observed = ">50K", exposed = "Male", epsilon = 0.2)
#' }
#' @name statistics
NULL

#' @rdname statistics
#' @export
survival <- function(x, time, event, by = NULL, observed, intervals = 8, epsilon, reuse = FALSE, level = 0.95) {
  column <- if (inherits(time, "pinq_spec")) time$column else name_of(time)
  declared <- column_of(session_of(x), column)
  if (!is.null(declared$values) || is_dated(declared)) refuse("`time` must be a number, or cuts of one.")
  if (!inherits(time, "pinq_spec")) time <- even_cuts(declared, column, intervals)
  if (time$kind != "cuts") refuse("`time` must be a number, or cuts of one.")
  grid <- grid_of(declared)
  points <- number_of(declared, unlist(time$points))
  edges <- c(0, pmin(pmax(1, ceiling((points - grid$lower) / grid$width - 1e-9)), grid$cells - 1), grid$cells)
  axes <- c(list(time, axis_of(event)), if (!is.null(by)) list(axis_of(by)))
  seen <- position(x, axes[[2]], observed, "observed")
  asked <- studied(x, axes, epsilon, reuse, level)
  groups <- if (is.null(by)) "all rows" else asked$labels[[3]]
  shape <- c(dim(asked$counts)[1:2], length(groups))
  counts <- array(asked$counts, shape)
  noisy <- array(asked$noisy, shape)
  widths <- diff(edges)
  faint <- few(min(apply(counts, 3, sum)) / length(widths), asked$noise)
  z <- stats::qnorm((1 + level) / 2)
  number <- function(cell) grid$origin + grid$width * cell
  curves <- lapply(seq_along(groups), function(group) {
    own <- counts[, , group, drop = FALSE]
    made <- estimated(own, asked$noise, function(counts) kaplan_meier(ends_of(counts, seen), widths))
    shown <- band(made$value, made$deviation, z)
    left <- rev(cumsum(rev(rowSums(own))))
    half <- z * sqrt(asked$noise * shape[2] * rev(seq_along(left)))
    events <- cumsum(noisy[, seen, group])
    shown$high[-1][events < z * sqrt(asked$noise * seq_along(events))] <- 1 # as far as can be told there were no events
    told <- c(TRUE, left > half) & !faint # where rows at risk can be told from noise
    shown[!told, ] <- NA
    list(
      curve = data.frame(group = groups[group], time = c(grid$lower, number(edges[-1] - 1)), shown),
      at_risk = data.frame(
        group = groups[group], time = grid$lower + grid$width * edges[-length(edges)], value = left,
        low = pmax(left - half, 0), high = left + half
      )
    )
  })
  frame <- do.call(rbind, lapply(curves, `[[`, "curve"))
  at_risk <- do.call(rbind, lapply(curves, `[[`, "at_risk"))
  keys <- c(if (is.null(by)) "group" else spec_column(by), column)
  keys <- ifelse(keys %in% c("value", "low", "high"), paste0(keys, "_"), keys) # the names of the numbers
  names(frame)[1:2] <- names(at_risk)[1:2] <- keys
  test <- if (length(groups) > 1 && !faint) {
    excess <- function(counts) log_rank(ends_of(counts, seen), widths)
    moved <- jacobian(counts, excess)
    variance <- log_rank_variance(ends_of(counts, seen), widths) + asked$noise * moved %*% t(moved)
    tested("log-rank", counts, asked$noise, excess, variance, function() alike_parts(counts, seen, widths))
  }
  stated(frame, asked, test, faint, c("pinq_survival", "pinq_statistic"), at_risk = at_risk, long = any(widths > 1))
}

#' @rdname statistics
#' @export
independence <- function(x, a, b, epsilon, reuse = FALSE, level = 0.95) {
  axes <- list(axis_of(a), axis_of(b))
  if (min(lengths(lapply(axes, known_labels, x = x))) < 2) refuse("a column with a single part is independent of all others.")
  asked <- studied(x, axes, epsilon, reuse, level)
  counts <- asked$counts
  n <- max(sum(counts), 1)
  expected <- function(table) outer(rowSums(table), colSums(table)) / max(sum(table), 1)
  # Under independence with shares p, contrasts A of one side have the spread A (diag p - pp') A', and noise
  # goes through A (I - 1p').
  side <- function(shares) {
    contrasts <- diag(length(shares))[-length(shares), , drop = FALSE]
    centred <- contrasts - as.vector(contrasts %*% shares)
    list(
      contrasts = contrasts, spread = contrasts %*% (diag(shares) - outer(shares, shares)) %*% t(contrasts),
      noise = centred %*% t(centred)
    )
  }
  down <- side(rowSums(counts) / n)
  across <- side(colSums(counts) / n)
  variance <- n * kronecker(across$spread, down$spread) + asked$noise * kronecker(across$noise, down$noise)
  excess <- function(table) as.vector(down$contrasts %*% (table - expected(table)) %*% t(across$contrasts))
  faint <- few(n / length(counts), asked$noise)
  test <- if (!faint) tested("chi-square", counts, asked$noise, excess, variance, function() expected(counts))
  labels <- expand.grid(asked$labels, KEEP.OUT.ATTRS = FALSE, stringsAsFactors = FALSE)
  half <- laplace_interval(asked$scale, level)
  seen <- as.vector(asked$noisy)
  frame <- data.frame(labels, value = seen, low = seen - half, high = seen + half)
  stated(frame, asked, test, faint, "pinq_statistic", hidden = character()) # counts have intervals of their own
}

#' @rdname statistics
#' @export
odds_ratio <- function(x, event, exposure, observed, exposed, epsilon, reuse = FALSE, level = 0.95) {
  axes <- list(axis_of(event), axis_of(exposure))
  if (any(lengths(lapply(axes, known_labels, x = x)) != 2)) refuse("an odds ratio needs two columns of two values.")
  rows <- order(seq_len(2) != position(x, axes[[1]], observed, "observed"))
  columns <- order(seq_len(2) != position(x, axes[[2]], exposed, "exposed"))
  asked <- studied(x, axes, epsilon, reuse, level)
  made <- estimated(asked$counts[rows, columns], asked$noise, function(counts) {
    log(counts[1, 1] * counts[2, 2] / (counts[1, 2] * counts[2, 1]))
  })
  z <- made$value / made$deviation
  ends <- made$value + c(0, -1, 1) * stats::qnorm((1 + level) / 2) * made$deviation
  faint <- few(min(asked$counts), asked$noise) || !all(is.finite(ends))
  versus <- paste0(spec_column(exposure), ": ", paste(asked$labels[[2]][columns], collapse = " against "))
  frame <- data.frame(groups = versus, statistic = "odds ratio", t(stats::setNames(exp(ends), c("value", "low", "high"))))
  test <- list(test = "Wald", statistic = z, df = NA, p.value = 2 * stats::pnorm(-abs(z)))
  stated(frame, asked, if (!faint) test, faint, "pinq_statistic")
}

spec_column <- function(x) if (inherits(x, "pinq_spec")) x$column else name_of(x)

# One noisy table of counts: as it was answered, and moved to the nearest without negative numbers.
studied <- function(x, axes, epsilon, reuse, level) {
  require_level(level)
  named <- vapply(axes, function(one) one$column, "")
  if (anyDuplicated(named)) refuse("a column is named twice.")
  answer <- noisy_count(do.call(partition, c(list(x), axes)), epsilon, reuse)
  keys <- setdiff(names(answer), c("value", "low", "high"))
  labels <- lapply(as.list(answer)[keys], function(key) unique(key[!is.na(key)]))
  kept <- answer$value[stats::complete.cases(as.data.frame(unclass(answer))[keys])]
  # The last column varies fastest, and in R's arrays the first.
  noisy <- aperm(array(kept, rev(lengths(labels))), rev(seq_along(keys)))
  scale <- attr(answer, "scale")
  stay <- exp(-1 / scale)
  list(
    noisy = noisy, counts = nearest(noisy), noise = 2 * stay / (1 - stay)^2, scale = scale, labels = labels,
    epsilon = attr(answer, "epsilon")
  )
}

# The labels of an axis, but for that of missing values.
known_labels <- function(axis, x) {
  labels <- axis_labels(session_of(x), axis)
  vapply(labels[!is.na(labels)], label_text, "")
}

# Which part of an axis a value is; asked before the charge.
position <- function(x, axis, value, parameter) {
  labels <- known_labels(axis, x)
  text <- if (length(value) == 1 && !is.na(value)) label_text(value) else NA
  same <- which(tolower(labels) == tolower(text)) # a letter's case decides where it must
  found <- if (text %in% labels) match(text, labels) else if (length(same) == 1) same else NA
  if (is.na(found)) refuse("`", parameter, "` must be one of ", paste(labels, collapse = ", "), ".")
  found
}

# Numbers of at least 0 with the same total: all are lowered by one amount and cut at 0.
nearest <- function(values) {
  total <- max(0, sum(values))
  descending <- sort(as.vector(values), decreasing = TRUE)
  excess <- (cumsum(descending) - total) / seq_along(descending)
  positive <- which(descending - excess > 0)
  lowered <- if (length(positive)) excess[max(positive)] else descending[1]
  values[] <- pmax(values - lowered, 0)
  values
}

# The derivative of each number of a statistic by each count, by complex steps, which lose no digits.
jacobian <- function(counts, statistic) {
  columns <- lapply(seq_along(counts), function(cell) {
    moved <- counts + 0i
    moved[cell] <- moved[cell] + 1e-30i
    Im(as.vector(statistic(moved))) / 1e-30
  })
  matrix(unlist(columns), ncol = length(counts))
}

# Whether rows of a cell are so few, beside the variance of its noise, that no law is near normal.
few <- function(rows, noise) rows < 5 * sqrt(noise)

# The numbers of a statistic and their deviations: rows by the multinomial law, and noise in each count.
estimated <- function(counts, noise, statistic) {
  moved <- jacobian(counts, statistic)
  rows <- moved^2 %*% as.vector(counts) - (moved %*% as.vector(counts))^2 / max(sum(counts), 1)
  deviation <- sqrt(pmax(as.vector(rows) + noise * rowSums(moved^2), 0))
  list(value = as.vector(statistic(counts)), deviation = deviation)
}

# The test of a score that is 0 without an effect; where counts are few, its law is drawn.
tested <- function(test, counts, noise, score, variance, null) {
  values <- score(counts)
  if (sum(counts) / length(counts) < 10 * sqrt(noise) && sum(counts) >= 1) {
    draws <- redrawn(null(), round(sum(counts)), noise, score, length(values))
    values <- values - colMeans(draws)
    variance <- stats::cov(draws)
  }
  parts <- eigen(as.matrix(variance), symmetric = TRUE)
  real <- parts$values > 1e-12 * max(parts$values)
  along <- as.vector(t(parts$vectors[, real, drop = FALSE]) %*% values)
  statistic <- sum(along^2 / parts$values[real])
  df <- length(values)
  list(test = test, statistic = statistic, df = df, p.value = stats::pchisq(statistic, df, lower.tail = FALSE))
}

# Scores of 1,000 tables with new rows and new noise; the seed is public, and the session's own is put back.
redrawn <- function(null, n, noise, score, numbers) {
  seed <- get0(".Random.seed", envir = globalenv(), inherits = FALSE)
  on.exit(if (is.null(seed)) rm(".Random.seed", envir = globalenv()) else assign(".Random.seed", seed, envir = globalenv()))
  set.seed(0)
  quiet <- 2 / (1 + sqrt(1 + 2 * noise))
  drawn <- vapply(1:1000, function(draw) {
    rows <- stats::rmultinom(1, n, pmax(as.vector(null), 0))
    moved <- null
    moved[] <- rows + stats::rgeom(length(rows), quiet) - stats::rgeom(length(rows), quiet)
    score(nearest(moved))
  }, numeric(numbers))
  matrix(drawn, ncol = numbers, byrow = TRUE)
}

# Rows at risk in each interval; of the censored half are gone in a long one, none in one of a single cell.
at_risk_of <- function(ends, widths) {
  left <- rev(cumsum(rev(ends[, 1] + ends[, 2])))
  left - ends[, 2] * (1 - 1 / widths) / 2
}

divided_by <- function(above, below) above / ifelse(Re(below) > 0, below, 1)

# Ends of shape (intervals, events and others, groups), of counts that have noise in each part.
ends_of <- function(counts, seen) {
  others <- apply(counts[, -seen, , drop = FALSE], c(1, 3), sum)
  aperm(array(c(counts[, seen, ], others), c(dim(counts)[c(1, 3)], 2)), c(1, 3, 2))
}

kaplan_meier <- function(ends, widths) {
  ends <- array(ends, dim(ends)[1:2])
  c(1, cumprod(1 - divided_by(ends[, 1], at_risk_of(ends, widths))))
}

risks <- function(ends, widths) {
  risk <- lapply(seq_len(dim(ends)[3]), function(group) at_risk_of(array(ends[, , group], dim(ends)[1:2]), widths))
  matrix(unlist(risk), nrow = dim(ends)[1])
}

events_of <- function(ends) array(ends[, 1, ], dim(ends)[c(1, 3)])

# Events beyond those expected, for all groups but the last.
log_rank <- function(ends, widths) {
  risk <- risks(ends, widths)
  events <- events_of(ends)
  expected <- divided_by(rowSums(events) * risk, array(rowSums(risk), dim(risk)))
  colSums(events - expected)[-ncol(risk)]
}

log_rank_variance <- function(ends, widths) {
  risk <- risks(ends, widths)
  total <- rowSums(risk)
  events <- rowSums(events_of(ends))
  share <- risk / pmax(total, 1)
  weights <- events * pmax(total - events, 0) / pmax(total - 1, 1)
  whole <- diag(as.vector(weights %*% share), ncol(share)) - t(share) %*% (weights * share)
  whole[-ncol(share), -ncol(share), drop = FALSE]
}

# The rows that there would be if all groups had one hazard, each its own censoring.
alike <- function(ends, widths) {
  risk <- risks(ends, widths)
  hazard <- rowSums(events_of(ends)) / pmax(rowSums(risk), 1e-9)
  stay <- apply(ends, 3, sum)
  rows <- array(0, dim(ends))
  for (interval in seq_along(widths)) {
    each <- ifelse(risk[interval, ] > 0, ends[interval, 2, ] / risk[interval, ], 0)
    at_risk <- stay / (1 + each * (1 - 1 / widths[interval]) / 2)
    rows[interval, 1, ] <- at_risk * hazard[interval]
    rows[interval, 2, ] <- at_risk * each
    gone <- rows[interval, 1, ] + rows[interval, 2, ]
    shrunk <- stay / pmax(gone, stay + 1e-9)
    rows[interval, , ] <- rows[interval, , ] * rep(shrunk, each = 2)
    stay <- pmax(stay - gone * shrunk, 0)
  }
  rows[length(widths), 2, ] <- rows[length(widths), 2, ] + stay
  rows
}

# The same rows by part: those without the event have the shares that all have.
alike_parts <- function(counts, seen, widths) {
  rows <- alike(ends_of(counts, seen), widths)
  share <- apply(counts, 2, sum)
  share[seen] <- 0
  null <- outer(array(rows[, 2, ], dim(counts)[c(1, 3)]), share / max(sum(share), 1e-9))
  null <- aperm(null, c(1, 3, 2))
  null[, seen, ] <- rows[, 1, ]
  null
}

# The band of a curve on the scale log(-log); where it is 1 or 0 that scale has no room.
band <- function(value, deviation, z) {
  inside <- value > 1e-9 & value < 1 - 1e-9
  safe <- ifelse(inside, value, 0.5)
  way <- exp(pmin(z * deviation / abs(safe * log(safe)), 100))
  low <- ifelse(inside, safe^way, value - z * deviation)
  high <- ifelse(inside, safe^(1 / way), value + z * deviation)
  data.frame(value = value, low = pmin(pmax(low, 0), 1), high = pmin(pmax(high, 0), 1))
}

stated <- function(frame, asked, test, faint, classes, ..., hidden = c("value", "low", "high")) {
  if (faint) frame[hidden] <- NA_real_
  if (faint) warning("there is no power: rows are few beside their noise; take a larger epsilon, or fewer parts.")
  rownames(frame) <- NULL
  made <- structure(frame, epsilon = asked$epsilon, n = sum(asked$counts), ..., class = c(classes, "pinq_answer", "data.frame"))
  for (name in names(test)) attr(made, name) <- test[[name]]
  made
}

#' @export
print.pinq_statistic <- function(x, ...) {
  NextMethod()
  test <- attr(x, "test")
  if (!is.null(test)) {
    numbers <- paste0("statistic ", signif(attr(x, "statistic"), 6), ", p-value ", signif(attr(x, "p.value"), 4))
    cat(test, ": ", numbers, "; about ", round(attr(x, "n")), " rows\n", sep = "")
  }
  invisible(x)
}

#' @rdname statistics
#' @export
plot.pinq_survival <- function(x, ...) {
  column <- names(x)[2]
  at_risk <- attr(x, "at_risk")
  groups <- unique(x[[1]])
  colours <- grDevices::hcl.colors(max(length(groups), 2), "Dark 3")
  old <- graphics::par(mar = c(5 + length(groups), 6, 2, 1))
  on.exit(graphics::par(old))
  times <- x[[column]]
  graphics::plot(range(times), c(0, 1), type = "n", xlab = "", ylab = "share, with noise", las = 1, ...)
  for (number in seq_along(groups)) {
    own <- x[x[[1]] == groups[number] & !is.na(x$value), ]
    if (nrow(own) < 2) next
    # Ends are spread over a long interval, so the curve falls within it.
    at <- if (attr(x, "long")) seq(min(own[[column]]), max(own[[column]]), length.out = 100) else own[[column]]
    drawn <- lapply(own[c("value", "low", "high")], function(y) stats::approx(own[[column]], y, at, ties = "ordered")$y)
    graphics::polygon(c(at, rev(at)), c(drawn$low, rev(drawn$high)), border = NA, col = grDevices::adjustcolor(colours[number], 0.25))
    graphics::lines(at, drawn$value, type = "s", col = colours[number], lwd = 2)
    risk <- at_risk[at_risk[[1]] == groups[number], ]
    graphics::mtext(round(risk$value), side = 1, line = 3 + number, at = risk[[column]], cex = 0.7, col = colours[number])
  }
  graphics::mtext(column, side = 1, line = 2)
  graphics::mtext("at risk (noisy)", side = 1, line = 3, at = min(times), cex = 0.7, adj = 0)
  if (length(groups) > 1) graphics::legend("topright", as.character(groups), col = colours, lwd = 2, bty = "n", title = names(x)[1])
  invisible(x)
}
