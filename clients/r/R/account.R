#' Returns the granted, spent and remaining epsilon
#'
#' @param x A handle, or parts.
#' @return A list of class `pinq_budget`: `epsilon`, `spent`, `remaining`, as numbers.
#' @export
budget <- function(x) {
  said <- send(session_of(x), "GET", "/budget")
  structure(lapply(said[c("epsilon", "spent", "remaining")], as.numeric), class = "pinq_budget")
}

#' @export
print.pinq_budget <- function(x, ...) {
  cat("epsilon ", x$epsilon, ", spent ", x$spent, ", remaining ", x$remaining, "\n", sep = "")
  invisible(x)
}

#' The public columns
#'
#' @param x A handle.
#' @return A data frame: `column`, `type`, `domain` in words, and whether values may be `missing`.
#' @export
schema <- function(x) {
  columns <- session_of(x)$columns
  data.frame(
    column = names(columns),
    type = vapply(columns, function(column) column$type, ""),
    domain = vapply(columns, domain_text, ""),
    missing = vapply(columns, function(column) isTRUE(column$nullable), NA),
    row.names = NULL
  )
}

domain_text <- function(column) {
  if (is.null(column$values)) {
    return(paste(column$lower, "to", column$upper))
  }
  shown <- paste(vapply(utils::head(column$values, 4), label_text, ""), collapse = ", ")
  paste0(length(column$values), " values: ", shown, if (length(column$values) > 4) ", ...")
}

#' Returns the terms of the grant, without the budget
#'
#' @param x A handle.
#' @return Text.
#' @export
terms_of <- function(x) send(session_of(x), "GET", "")$terms

#' Lists your queries, their costs and their answers
#'
#' It prints a short form; the columns have everything. (R's own history of commands is [utils::history()].)
#'
#' @param x A handle.
#' @return A data frame, oldest first: `at` (UTC), `asked`, `epsilon` (`NA` for a refusal), `spent`
#'   (the total after it), `outcome`, and `answer`, a list of the numbers.
#' @export
history <- function(x) {
  session <- session_of(x)
  lines <- list()
  repeat {
    page <- send(session, "GET", paste0("/history?start=", length(lines)))
    lines <- c(lines, page$lines)
    if (!isTRUE(page$more) || !length(page$lines)) break
  }
  text <- function(name) vapply(lines, function(line) if (is.null(line[[name]])) NA_character_ else line[[name]], "")
  shown <- data.frame(
    at = as.POSIXct(text("at"), format = "%Y-%m-%dT%H:%M:%OS", tz = "UTC"), asked = text("about"),
    epsilon = as.numeric(text("epsilon")), spent = as.numeric(text("spent")), outcome = text("outcome")
  )
  shown$answer <- lapply(lines, function(line) if (is.null(line$answer)) NULL else values_of(line$answer$values))
  structure(shown, class = c("pinq_history", "data.frame"))
}

#' @export
print.pinq_history <- function(x, ...) {
  short <- function(text, most) ifelse(nchar(text) > most, paste0(substr(text, 1, most - 3), "..."), text)
  figures <- function(number) ifelse(is.na(number), "", format(signif(number, 3), trim = TRUE, drop0trailing = TRUE))
  answer <- vapply(x$answer, function(one) {
    few <- unlist(utils::head(one, 3))
    paste0(paste(if (is.numeric(few)) signif(few, 6) else few, collapse = ", "), if (length(one) > 3) ", ...")
  }, "")
  shown <- data.frame(
    at = format(x$at, "%Y-%m-%d %H:%M"), asked = short(x$asked, 40), epsilon = vapply(x$epsilon, figures, ""),
    spent = vapply(x$spent, figures, ""), outcome = short(x$outcome, 24), answer = short(answer, 30)
  )
  print(shown, row.names = FALSE, right = FALSE)
  invisible(x)
}

#' Closes the connection of a handle
#'
#' @param x A handle.
#' @return Nothing.
#' @export
disconnect <- function(x) {
  session_of(x)
  rm(list = x$session, envir = sessions)
  invisible()
}
