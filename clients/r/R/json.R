# JSON as the interface has it: numbers in full, one value unboxed, NULL as null.

to_json <- function(x) {
  as.character(jsonlite::toJSON(x, auto_unbox = TRUE, null = "null", digits = I(17), json_verbatim = TRUE))
}

parse_json <- function(text) jsonlite::fromJSON(text, simplifyVector = FALSE)

# A whole number as JSON must have it: never 1e+05.
whole <- function(x, name, low, high) {
  fits <- is.numeric(x) && length(x) == 1 && is.finite(x) && x == round(x) && x >= low && x <= high
  if (!fits) refuse("`", name, "` must be a whole number from ", low, " to ", high, ".")
  structure(format(x, scientific = FALSE, digits = 16), class = "json")
}

# A loss as decimal text; the server rounds it up to a multiple of 1e-9.
loss <- function(epsilon) {
  if (is.character(epsilon) && length(epsilon) == 1 && grepl("^[0-9]*[.]?[0-9]+$", epsilon)) {
    return(epsilon)
  }
  fits <- is.numeric(epsilon) && length(epsilon) == 1 && is.finite(epsilon) && epsilon > 0
  if (!fits) refuse("`epsilon` must be one number greater than 0, or its decimal text.")
  format(epsilon, scientific = FALSE, digits = 15, trim = TRUE)
}

values_of <- function(x) vapply(x, as.numeric, numeric(1))
