# What the public schema says of parts: how many there are, and what each is called.

column_of <- function(session, name) {
  column <- session$columns[[name]]
  if (is.null(column)) {
    refuse("there is no column '", name, "'; the columns are ", paste(names(session$columns), collapse = ", "), ".")
  }
  column
}

# A number's grid: lower bound, width of a cell, number of cells, and the number of cell 0.
grid_of <- function(column) {
  lower <- as.numeric(column$lower)
  upper <- as.numeric(column$upper)
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
  labels <- switch(spec$kind,
    cuts = cut_labels(column, unlist(spec$points)),
    groups = return(vapply(spec$groups, group_text, "")),
    value_labels(column)
  )
  if (isTRUE(column$nullable)) c(labels, NA) else labels
}

value_labels <- function(column) {
  if (!is.null(column$values)) {
    return(vapply(column$values, label_text, ""))
  }
  grid <- grid_of(column)
  grid$origin + grid$width * (seq_len(grid$cells) - 1)
}

cut_labels <- function(column, points) {
  grid <- grid_of(column)
  threshold <- pmin(pmax(1, ceiling((points - grid$lower) / grid$width - 1e-9)), grid$cells - 1)
  edges <- format_number(grid$lower + grid$width * threshold)
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
