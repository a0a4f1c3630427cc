# What is sent is what the interface documents; no server is needed.

test_that("numbers cross in full, whole numbers as such, missing values as null", {
  expect_equal(to_json(plain(cuts("age", c(0.1, 100000)))), '{"column":"age","points":[0.1,100000],"kind":"cuts"}')
  expect_equal(to_json(plain(shards(1e5 - 40000, key = 2^53))), '{"count":60000,"key":9007199254740992,"kind":"shards"}')
  expect_equal(
    to_json(plain(groups("job", list("clerk", c("smith", NA))))),
    '{"column":"job","groups":[["clerk"],["smith",null]],"kind":"groups"}'
  )
  expect_equal(loss(1e-9), "0.000000001")
  expect_equal(loss(0.1), "0.1")
})

test_that("malformed arguments are refused before anything is sent", {
  expect_error(loss(-1), class = "QueryError")
  expect_error(loss("1e-3"), class = "QueryError")
  expect_error(cuts("age", "thirty"), class = "QueryError")
  expect_error(shards(0), class = "QueryError")
  expect_error(partition(list(), values("sex")), class = "QueryError")
  expect_error(connect("http://stats.example.org/people", insecure_http = TRUE), "on this machine only")
  expect_error(connect("https://127.0.0.1:1/people", token = "password"), "no token", class = "QueryError")
})

test_that("an interval holds discrete Laplace noise with the probability that it says", {
  for (scale in c(0.5, 10, 300)) {
    k <- laplace_interval(scale, 0.95)
    p <- exp(-1 / scale)
    expect_lte(2 * p^(k + 1) / (1 + p), 0.05)
    expect_gt(2 * p^k / (1 + p), 0.05)
  }
})

test_that("two questions are never one, whatever the seed", {
  set.seed(1)
  first <- new_id()
  set.seed(1)
  expect_false(first == new_id())
  expect_match(first, "^[0-9a-f]{32}$")
})
