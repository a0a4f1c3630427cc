# The analyst's token: given, of the environment, or of a file that nobody else may read.

find_token <- function(url, token) {
  text <- if (is.null(token)) Sys.getenv("PINQ_TOKEN") else token
  if (is.null(token) && !nzchar(text)) {
    text <- token_of_file(url)
  }
  if (!is.character(text) || length(text) != 1 || !grepl("^pinq_[!-~]{1,251}$", trimws(text))) {
    refuse(
      "there is no token for ", url, ". It is what `pinq grant` printed, and looks like pinq_...: pass it as ",
      "`token`, or keep it in PINQ_TOKEN, in the file that PINQ_TOKEN_FILE names, or in a line `", url,
      " TOKEN` of ", home_file(), " (mode 0600)."
    )
  }
  trimws(text)
}

home_file <- function() {
  root <- Sys.getenv("XDG_CONFIG_HOME", file.path(path.expand("~"), ".config"))
  file.path(root, "pinq", "tokens")
}

token_of_file <- function(url) {
  named <- Sys.getenv("PINQ_TOKEN_FILE")
  file <- if (nzchar(named)) named else home_file()
  if (!file.exists(file)) {
    if (nzchar(named)) refuse("there is no token file ", file, ".")
    return("")
  }
  open_to_others <- bitwAnd(as.integer(file.info(file)$mode), strtoi("77", 8)) != 0
  if (.Platform$OS.type == "unix" && open_to_others) {
    refuse("the token file ", file, " is readable by others, so what it holds is not secret; run: chmod 600 ", file)
  }
  lines <- strsplit(grep("^\\s*(#|$)", readLines(file, warn = FALSE), value = TRUE, invert = TRUE), "\\s+")
  if (length(lines) == 1 && length(lines[[1]]) == 1) {
    return(lines[[1]])
  }
  bare <- function(address) sub("/+$", "", address)
  matching <- Filter(function(words) length(words) == 2 && bare(words[1]) == bare(url), lines)
  if (length(matching)) matching[[1]][2] else ""
}
