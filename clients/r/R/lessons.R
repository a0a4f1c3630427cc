# What a data frame does and a handle does not: an error that shows the line to write, with a column of
# the table. It follows from the schema alone.

lesson <- function(x, wish, line) {
  columns <- session_of(x)$columns
  number <- Filter(function(column) is.null(column$values), columns)
  category <- Filter(function(column) !is.null(column$values), columns)
  named <- function(found) if (length(found)) names(found)[1] else names(columns)[1]
  line <- sub("{number}", named(number), sub("{category}", named(category), line, fixed = TRUE), fixed = TRUE)
  refuse("a handle gives no rows, only noisy answers; to ", wish, " write ", line, ".")
}

# A part's own field, or the lesson of a column that is asked for as of a data frame.
field <- function(x, name) {
  own <- unclass(x)
  if (name %in% c("session", "path", "specs")) {
    return(own[[name]])
  }
  column <- column_of(session_of(x), name) # says which there are
  line <- if (is.null(column$values)) "noisy_avg(h, \"%s\", epsilon = 0.1)" else "crosstab(h, \"%s\", epsilon = 0.1)"
  lesson(x, "see a column", sprintf(line, name))
}

#' @export
`$.pinq_part` <- function(x, name) field(x, name)

#' @export
`[[.pinq_part` <- function(x, i, ...) if (is.character(i)) field(x, i) else unclass(x)[[i]]

#' @export
`[.pinq_part` <- function(x, ...) lesson(x, "keep some rows", "part(partition(h, values(\"{category}\")), \"VALUE\")")

#' @export
subset.pinq_part <- `[.pinq_part`

#' @export
`$<-.pinq_part` <- function(x, name, value) refuse("a handle is not changed: `", name, "` cannot be set on it.")

#' @export
`[[<-.pinq_part` <- function(x, i, value) refuse("a handle is not changed: `", i, "` cannot be set on it.")

#' @export
dim.pinq_part <- function(x) lesson(x, "count rows", "noisy_count(h, epsilon = 0.1)")

#' @export
length.pinq_part <- dim.pinq_part

#' @importFrom utils str
#' @export
str.pinq_part <- function(object, ...) print(object)

#' @importFrom utils head
#' @export
head.pinq_part <- function(x, ...) lesson(x, "see what there is", "schema(h), or summary(h, \"{number}\", epsilon = 0.3)")

#' @importFrom utils tail
#' @export
tail.pinq_part <- head.pinq_part

#' @export
as.data.frame.pinq_part <- head.pinq_part

#' @export
mean.pinq_part <- function(x, ...) lesson(x, "average a column", "noisy_avg(h, \"{number}\", epsilon = 0.1)")

#' @importFrom stats median
#' @export
median.pinq_part <- function(x, na.rm = FALSE, ...) {
  lesson(x, "find a median", "quantiles(h, \"{number}\", 0.5, epsilon = 0.1)")
}
