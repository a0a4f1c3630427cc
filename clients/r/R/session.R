# What stands behind a handle: address, token and schema. A handle holds only the number of its
# session, so that a saved workspace holds no token.

PROTOCOL <- "1"
# The revision of the protocol, as in pinq/language/wire.py.
REVISION <- "5"
OPENING <- 5 # seconds in which somebody must answer at all when a handle is opened
sessions <- new.env(parent = emptyenv())

session_of <- function(x) {
  session <- if (inherits(x, "pinq_part")) sessions[[x$session]]
  if (is.null(session)) {
    refuse("this is no open handle; open one with connect(). A handle of a saved workspace has to be opened again.")
  }
  session
}

#' Opens a handle on a dataset behind a server
#'
#' @param url `https://host:port/dataset`.
#' @param token The token that `pinq grant` printed. By default `PINQ_TOKEN`, else the file that
#'   `PINQ_TOKEN_FILE` names, else a line `URL TOKEN` of `~/.config/pinq/tokens`; files need mode
#'   0600.
#' @param verify A file with the provider's own certificate authority; by default those of the
#'   system. The check cannot be switched off.
#' @param timeout Seconds for a request, including retries.
#' @param insecure_http Whether to allow `http://`, for a server on the same machine.
#' @return A handle on the whole table, of class `pinq_part`. It prints the columns and the budget.
#' @examples
#' \dontrun{
#' people <- connect("https://stats.example.org:8443/people")
#' noisy_count(people, epsilon = 0.1)
#' }
#' @export
connect <- function(url, token = NULL, verify = NULL, timeout = 60, insecure_http = FALSE) {
  if (!is.numeric(timeout) || length(timeout) != 1 || !isTRUE(timeout > 0)) {
    refuse("`timeout` must be a number of seconds greater than 0.")
  }
  address <- split_url(url, insecure_http)
  if (!is.null(verify) && !(is.character(verify) && length(verify) == 1 && file.exists(verify))) {
    refuse("`verify` must be a file with the provider's certificate; it cannot be switched off.")
  }
  session <- c(address, list(url = url, token = find_token(url, token), verify = verify, timeout = timeout))
  said <- send(session, "GET", "", opening = TRUE)
  session <- c(session, list(
    name = said$dataset, analyst = said$analyst, digest = said$digest,
    columns = said$schema$columns, max_rows = said$schema$max_rows
  ))
  id <- new_id()
  assign(id, session, envir = sessions)
  new_part(id)
}

split_url <- function(url, insecure_http) {
  pattern <- "^(https?)://([^/?#@]+)((?:/[^/?#]+)*)/([^/?#]+)/?$"
  fits <- is.character(url) && length(url) == 1 && grepl(pattern, url, perl = TRUE)
  if (!fits) refuse("`url` must be like https://stats.example.org:8443/people, the dataset's name last.")
  pieces <- regmatches(url, regexec(pattern, url, perl = TRUE))[[1]]
  host <- sub(":[0-9]+$", "", pieces[3])
  local <- isTRUE(insecure_http) && host %in% c("localhost", "127.0.0.1", "[::1]")
  if (pieces[2] == "http" && !local) {
    refuse("`insecure_http` is needed for http://, which is for a server on this machine only.")
  }
  list(root = paste0(pieces[2], "://", pieces[3], pieces[4]), path = paste0("/v", PROTOCOL, "/", pieces[5]))
}

# 128 random bits of the operating system: set.seed() must not make two questions one.
new_id <- function() paste(format(openssl::rand_bytes(16)), collapse = "")

request_of <- function(session, method, path, body) {
  built <- httr2::request(paste0(session$root, session$path, path))
  built <- httr2::req_method(built, method)
  built <- httr2::req_headers(built,
    Authorization = paste("Bearer", session$token), `Pinq-Protocol` = PROTOCOL, `Pinq-Revision` = REVISION, Accept = "application/json"
  )
  if (!is.null(session$digest)) built <- httr2::req_headers(built, `Pinq-Schema` = session$digest)
  if (!is.null(body)) built <- httr2::req_body_raw(built, enc2utf8(body), "application/json")
  built <- httr2::req_options(built, followlocation = FALSE)
  if (!is.null(session$verify)) built <- httr2::req_options(built, cainfo = normalizePath(session$verify))
  if (startsWith(session$root, "http:")) built <- httr2::req_options(built, noproxy = "*")
  httr2::req_error(built, is_error = function(response) FALSE)
}

# Sends until there is an answer, an error that repeating would not change, or no time. A question
# has an id, which is charged once and answered once: so the same bytes may always be sent again.
send <- function(session, method, path, body = NULL, opening = FALSE) {
  built <- request_of(session, method, path, body)
  start <- proc.time()[["elapsed"]]
  deadline <- start + session$timeout
  wait <- 0.05
  repeat {
    left <- max(deadline - proc.time()[["elapsed"]], 0.001)
    attempt <- try_once(session, built, left, opening)
    if (is.null(attempt$error)) {
      return(attempt$answer)
    }
    if (!attempt$again) stop(attempt$error)
    if (opening && attempt$silent) deadline <- min(deadline, start + OPENING)
    pause <- max(wait, if (is.null(attempt$error$retry_after)) 0 else attempt$error$retry_after)
    if (proc.time()[["elapsed"]] + pause >= deadline) stop(attempt$error)
    Sys.sleep(pause)
    wait <- min(2 * wait, 2)
  }
}

# One attempt: its answer, or its error and whether it is worth another.
try_once <- function(session, built, left, opening) {
  built <- httr2::req_options(httr2::req_timeout(built, left), connecttimeout = if (opening) min(left, OPENING) else left)
  response <- tryCatch(httr2::req_perform(built), error = identity)
  if (inherits(response, "error")) {
    return(unreachable(session, response, opening))
  }
  status <- httr2::resp_status(response)
  text <- tryCatch(httr2::resp_body_string(response, "UTF-8"), error = function(e) "") # a body may be empty
  if (status == 200) {
    answer <- tryCatch(parse_json(text), error = function(e) NULL)
    if (is.list(answer)) return(list(answer = answer))
  }
  known <- failure(text)
  if (is.null(known)) {
    known <- condition("unavailable", paste0(
      session$root, " answered ", status, " and is not a pinq server that this client understands (protocol ",
      PROTOCOL, ")."
    ))
  }
  list(error = known, again = status %in% c(429, 502, 503, 504), silent = FALSE)
}

unreachable <- function(session, problem, opening) {
  why <- conditionMessage(problem)
  if (!is.null(problem$parent)) why <- paste(why, conditionMessage(problem$parent))
  if (grepl("certificate|SSL", why, ignore.case = TRUE)) {
    text <- paste0(
      "The TLS connection to ", session$root, " failed: ", why, ". If its certificate is the provider's own, ask for ",
      "the file and pass it as `verify`."
    )
    return(list(error = condition("unavailable", text), again = FALSE, silent = TRUE))
  }
  text <- paste0(
    "No answer from ", session$root, " (", why, ").",
    if (!opening) {
      paste0(
        " If the question was charged meanwhile, its answer is kept: asking the same again with `reuse = TRUE` returns it ",
        "at no further cost."
      )
    }
  )
  list(error = condition("unavailable", text), again = TRUE, silent = TRUE)
}
