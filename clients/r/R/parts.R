# A part is a path of choices below the whole table, and the specs that cut it into several.

new_part <- function(session, path = list(), specs = list()) {
  structure(list(session = session, path = path, specs = specs), class = "pinq_part")
}

#' Splits a part into disjoint parts
#'
#' A query of all parts costs epsilon once, because they are disjoint. The split itself is free.
#'
#' @param x A handle, or parts, each of which is then split.
#' @param ... Specs: [values()], [cuts()], [groups()], [shards()], [cross()]. With several
#'   specs, every combination is a part.
#' @return Parts, of class `pinq_part`.
#' @examples
#' \dontrun{
#' noisy_count(partition(people, values("sex"), cuts("age", c(30, 45))), epsilon = 0.1)
#' }
#' @export
partition <- function(x, ...) {
  session <- session_of(x)
  specs <- flat(list(...))
  for (spec in specs) axis_labels(session, spec) # an unknown column is refused here
  new_part(x$session, x$path, c(x$specs, specs))
}

#' Takes one of the parts
#'
#' @param x Parts, as `partition()` returns them.
#' @param ... The part's labels, one for each spec: `part(p, "Female", "< 30")`; or one number, its
#'   row in the answers, if no label is that number.
#' @return A handle on that part.
#' @export
part <- function(x, ...) {
  session <- session_of(x)
  wanted <- list(...)
  rows <- part_labels(session, x$specs)
  if (!length(x$specs)) refuse("this is a single part already; partition() makes several.")
  single <- length(wanted) == 1 && is.numeric(wanted[[1]])
  row <- if (single && !any(spells_number(rows[[1]]))) wanted[[1]] else row_of(rows, wanted)
  row <- as.numeric(whole(row, "part", 1, nrow(rows)))
  new_part(x$session, c(x$path, list(list(spec = joined(x$specs), index = row - 1))))
}

row_of <- function(rows, wanted) {
  if (length(wanted) != ncol(rows)) refuse("one label is needed for each of ", ncol(rows), " specs.")
  same <- rep(TRUE, nrow(rows))
  for (axis in seq_along(wanted)) {
    labels <- unique(rows[[axis]])
    place <- place_of(labels, wanted[[axis]])
    same <- same & !is.na(place) & match(rows[[axis]], labels) == place
  }
  if (sum(same) != 1) {
    known <- paste(utils::head(unique(rows[[1]]), 12), collapse = ", ")
    refuse("there is no part ", paste(unlist(wanted), collapse = ", "), "; the first spec's parts are ", known, ".")
  }
  which(same)
}

joined <- function(specs) if (length(specs) == 1) specs[[1]] else list(specs = specs, kind = "cross")

# Parts as the interface has them: distinct specs, the nodes of the path, what is asked below.
wire_parts <- function(session, x) {
  chosen <- lapply(x$path, function(step) step$spec)
  last <- length(x$path)
  nodes <- lapply(seq_len(last), function(i) {
    list(as.integer(i - 1), as.integer(i - 1), as.integer(x$path[[i]]$index))
  })
  if (!length(x$specs)) {
    return(list(specs = chosen, nodes = nodes, asked = list(list(last, -1L)), shape = list()))
  }
  shape <- lapply(x$specs, function(spec) length(axis_labels(session, spec)))
  list(specs = c(chosen, list(joined(x$specs))), nodes = nodes, asked = list(list(last, last)), shape = shape)
}

#' @export
print.pinq_part <- function(x, ...) {
  session <- session_of(x)
  cat(session$name, " as ", session$analyst, "\n", sep = "")
  if (length(x$path)) cat("  below ", paste(vapply(x$path, step_text, ""), collapse = ", "), "\n", sep = "")
  if (length(x$specs)) {
    shown <- format(as_spec(joined(x$specs)))
    cat("  in ", nrow(part_labels(session, x$specs)), " parts by ", shown, "\n", sep = "")
  } else {
    print(schema(x), row.names = FALSE, right = FALSE)
  }
  print(budget(x))
  invisible(x)
}

step_text <- function(step) paste0("part ", step$index + 1, " of ", format(as_spec(step$spec)))
