# Every error is a condition of the class that the server names, and of `pinq_error`.

CLASSES <- c(
  "query" = "QueryError", "budget" = "BudgetExceeded", "not-allowed" = "NotAllowed",
  "too-many-requests" = "TooManyRequests", "not-authorised" = "NotAuthorised",
  "unavailable" = "Unavailable", "ledger" = "LedgerError", "engine" = "EngineError",
  "internal" = "InternalError"
)

#' Conditions that a failed query raises
#'
#' All have the class `pinq_error`, the field `code` and one further class: `QueryError` (a
#' request or an argument is malformed), `BudgetExceeded` (with `asked`, `remaining` and `scope`),
#' `NotAllowed` (the grant's terms forbid it), `TooManyRequests` (with `retry_after`, in seconds),
#' `NotAuthorised`, `Unavailable` (no answer; the same query with `reuse = TRUE` is safe),
#' `LedgerError`, `EngineError` (the charge stands) and `InternalError`. Classes and texts are those of
#' the Python client.
#'
#' @name pinq_error
#' @examples
#' \dontrun{
#' tryCatch(noisy_count(people, epsilon = 5), BudgetExceeded = function(e) e$remaining)
#' }
NULL

condition <- function(code, message, fields = list()) {
  kind <- if (code %in% names(CLASSES)) CLASSES[[code]] else character()
  structure(
    class = c(kind, "pinq_error", "error", "condition"),
    c(list(message = message, call = NULL, code = code), fields)
  )
}

refuse <- function(...) stop(condition("query", paste0(..., " Nothing was spent.")))

# The condition of an answer that is no success, or NULL where it is none of ours.
failure <- function(text) {
  said <- tryCatch(parse_json(text), error = function(e) NULL)
  if (!is.list(said) || !is.character(said$code) || !is.character(said$message)) {
    return(NULL)
  }
  decimal <- intersect(c("asked", "remaining"), names(said))
  said[decimal] <- lapply(said[decimal], as.numeric)
  condition(said$code, said$message, said[setdiff(names(said), c("code", "message"))])
}
