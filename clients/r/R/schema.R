# What the public schema says of parts: how many there are, and what each is called.

column_of <- function(session, name) {
  column <- session$columns[[name]]
  if (is.null(column)) {
    refuse("there is no column '", name, "'; the columns are ", paste(names(session$columns), collapse = ", "), ".")
  }
  column
}

SECONDS <- c(date = 86400, datetime = 60) # of a unit of a column of dates

is_dated <- function(column) column$type %in% names(SECONDS)

# A bound or cut as a number: of dates the days or minutes since 1970, in UTC.
number_of <- function(column, value) {
  if (!is_dated(column)) {
    return(as.numeric(value))
  }
  form <- ifelse(grepl(":", value), "%Y-%m-%d %H:%M", "%Y-%m-%d")
  seconds <- mapply(function(text, one) as.numeric(as.POSIXct(text, format = one, tz = "UTC")), value, form)
  unname(seconds) / SECONDS[[column$type]]
}

# Numbers as text: dates as dates, to the grid's unit.
number_text <- function(column, numbers) {
  if (!is_dated(column)) {
    return(format_number(numbers))
  }
  moments <- as.POSIXct(floor(numbers) * SECONDS[[column$type]], origin = "1970-01-01", tz = "UTC")
  sub(" 00:00$", "", format(moments, "%Y-%m-%d %H:%M"))
}

# Numbers as R has them: Date, POSIXct or numeric.
number_value <- function(column, numbers) {
  if (!is_dated(column)) {
    return(numbers)
  }
  moments <- as.POSIXct(round(numbers) * SECONDS[[column$type]], origin = "1970-01-01", tz = "UTC")
  if (column$type == "date") as.Date(moments, tz = "UTC") else moments
}

# A number's grid: lower bound, width of a cell, number of cells, and the number of cell 0.
grid_of <- function(column) {
  lower <- number_of(column, column$lower)
  upper <- number_of(column, column$upper)
  span <- upper - lower
  width <- if (!is.null(column$step)) as.numeric(column$step) else default_width(span, isTRUE(column$integer))
  cells <- if (isTRUE(column$integer)) floor(span / width + 1e-9) + 1 else max(1, ceiling(span / width - 1e-9))
  origin <- lower + (if (isTRUE(column$integer)) width - 1 else width) / 2
  list(lower = lower, width = width, cells = cells, origin = origin)
}

default_width <- function(span, integer) {
  if (!integer) {
    return(span / 4096)
  }
  least <- ceiling((span + 1) / 2^24)
  steps <- c(1, 2, 5, 10) * 10^floor(log10(least))
  steps[steps >= least][1]
}

# The labels of a spec's parts, in order; those of one axis only. NA is the missing value.
axis_labels <- function(session, spec) {
  if (spec$kind == "shards") {
    return(seq_len(as.numeric(spec$count)) - 1)
  }
  column <- column_of(session, spec$column)
  if (spec$kind == "cuts" && !is.null(column$values)) refuse("`", spec$column, "` is categorical; cuts are of a number.")
  if (spec$kind == "calendar" && !is_dated(column)) refuse("`", spec$column, "` has no dates.")
  labels <- switch(spec$kind,
    cuts = cut_labels(column, unlist(spec$points)),
    groups = return(vapply(spec$groups, group_text, "")),
    calendar = period_labels(column, spec$period),
    value_labels(column)
  )
  if (isTRUE(column$nullable)) c(labels, NA) else labels
}

value_labels <- function(column) {
  if (!is.null(column$values)) {
    return(vapply(column$values, label_text, ""))
  }
  grid <- grid_of(column)
  numbers <- grid$origin + grid$width * (seq_len(grid$cells) - 1)
  if (is_dated(column)) number_text(column, numbers) else numbers
}

# The years, quarters or months that the bounds reach, or the days of a week.
period_labels <- function(column, period) {
  if (period == "weekday") {
    return(c("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"))
  }
  months <- c(year = 12, quarter = 3, month = 1)[[period]]
  reached <- vapply(c(column$lower, column$upper), function(text) {
    (as.numeric(substr(text, 1, 4)) * 12 + as.numeric(substr(text, 6, 7)) - 1) %/% months
  }, numeric(1))
  starts <- seq(reached[[1]], reached[[2]]) * months
  year <- starts %/% 12
  month <- starts %% 12
  switch(period,
    year = as.character(year),
    quarter = sprintf("%04d-Q%d", as.integer(year), as.integer(month %/% 3 + 1)),
    sprintf("%04d-%02d", as.integer(year), as.integer(month + 1))
  )
}

cut_labels <- function(column, points) {
  grid <- grid_of(column)
  numbers <- number_of(column, points)
  threshold <- pmin(pmax(1, ceiling((numbers - grid$lower) / grid$width - 1e-9)), grid$cells - 1)
  edges <- number_text(column, grid$lower + grid$width * threshold)
  last <- length(edges)
  between <- if (last > 1) paste(edges[-last], "to <", edges[-1])
  c(paste("<", edges[1]), between, paste(">=", edges[last]))
}

# A data frame with a row for each part, the last axis fastest, as answers come.
part_labels <- function(session, specs) {
  if (!length(specs)) {
    return(data.frame(row.names = 1L))
  }
  axes <- lapply(specs, function(spec) axis_labels(session, spec))
  names(axes) <- vapply(specs, function(spec) if (is.null(spec$column)) "shard" else spec$column, "")
  rows <- rev(expand.grid(rev(axes), stringsAsFactors = FALSE, KEEP.OUT.ATTRS = FALSE))
  rownames(rows) <- NULL
  rows
}
