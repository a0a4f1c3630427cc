# Against the server of test-server.R. Without noise the numbers are those of base R.

url <- Sys.getenv("PINQ_TEST_URL")
skip_if(!nzchar(url), "no server is named by PINQ_TEST_URL")
people <- connect(url, token = Sys.getenv("PINQ_TEST_TOKEN"), verify = Sys.getenv("PINQ_TEST_CA"))

# The public table of the server's test.
rows <- data.frame(sex = c("Female", "Male"), age = (7 * 0:399) %% 100)
rows$income <- ifelse(rows$age > 60, ">50K", "<=50K")

test_that("independence is chi-square's", {
  tested <- independence(people, "sex", "income", epsilon = 40)
  exact <- suppressWarnings(stats::chisq.test(table(rows$sex, rows$income), correct = FALSE))
  expect_equal(attr(tested, "statistic"), exact$statistic[[1]], tolerance = 1e-6)
  expect_equal(attr(tested, "p.value"), exact$p.value, tolerance = 1e-6)
  expect_equal(names(tested), c("sex", "income", "value", "low", "high"))
  expect_output(print(tested), "chi-square: statistic")
  expect_warning(hidden <- independence(people, "sex", "income", epsilon = 0.01), "no power")
  expect_null(attr(hidden, "p.value"))
  expect_false(anyNA(hidden$value)) # counts, each with its interval
})

test_that("where counts are few, rows and noise are drawn anew, and the session's seed stays", {
  null <- matrix(c(1200, 800, 1200, 800), 2)
  set.seed(7)
  before <- .Random.seed
  drawn <- redrawn(null, 4000, 200, as.vector, 4)
  expect_identical(.Random.seed, before)
  expect_equal(colMeans(drawn), as.vector(null), tolerance = 0.01)
  share <- as.vector(null) / 4000
  expect_equal(apply(drawn, 2, stats::var), 4000 * share * (1 - share) + 200, tolerance = 0.15)
  excess <- function(table) table[1, 1] - sum(table[1, ]) * sum(table[, 1]) / sum(table)
  few <- matrix(c(60, 40, 40, 60), 2)
  # The excess is 10. Its variance is 12.5 by the rows and 50 / 4 by the noise: 10^2 / 25 = 4.
  made <- tested("chi-square", few, 50, excess, NULL, function() matrix(50, 2, 2))
  expect_equal(made$statistic, 4, tolerance = 0.15)
})

test_that("an odds ratio has Woolf's interval", {
  effect <- odds_ratio(people, "income", "sex", observed = ">50K", exposed = "Male", epsilon = 40)
  counts <- table(rows$income, rows$sex)[c(">50K", "<=50K"), c("Male", "Female")]
  exact <- log(counts[1, 1] * counts[2, 2] / (counts[1, 2] * counts[2, 1])) + c(0, -1, 1) * qnorm(0.975) * sqrt(sum(1 / counts))
  expect_equal(log(unlist(effect[1, c("value", "low", "high")], use.names = FALSE)), exact, tolerance = 1e-6)
  expect_equal(effect$groups, "sex: Male against Female")
})

test_that("survival is Kaplan and Meier's in intervals of one cell, with Greenwood's errors and a log-rank test", {
  curves <- survival(people, "age", "income", by = "sex", observed = ">50K", intervals = 100, epsilon = 40)
  own <- rows[rows$sex == "Male", ]
  risk <- vapply(0:99, function(age) sum(own$age >= age), 0)
  events <- vapply(0:99, function(age) sum(own$age == age & own$income == ">50K"), 0)
  curve <- cumprod(1 - events / pmax(risk, 1))
  male <- curves[curves$sex == "Male", ]
  seen <- !is.na(male$value[-1])
  expect_equal(male$value[-1][seen], curve[seen], tolerance = 1e-6)
  expect_equal(male$age[2:4], c(0, 1, 2))
  within <- seen & curve < 1 & curve > 0
  greenwood <- curve * sqrt(cumsum(events / pmax(risk * (risk - events), 1)))
  low <- curve^exp(qnorm(0.975) * greenwood / abs(curve * log(curve)))
  expect_equal(male$low[-1][within], low[within], tolerance = 1e-6)
  total <- lapply(c("Female", "Male"), function(sex) {
    one <- rows[rows$sex == sex, ]
    list(
      risk = vapply(0:99, function(age) sum(one$age >= age), 0),
      events = vapply(0:99, function(age) sum(one$age == age & one$income == ">50K"), 0)
    )
  })
  n <- total[[1]]$risk + total[[2]]$risk
  d <- total[[1]]$events + total[[2]]$events
  share <- total[[1]]$risk / pmax(n, 1)
  excess <- sum(total[[1]]$events - d * share)
  variance <- sum(d * share * (1 - share) * (n - d) / pmax(n - 1, 1))
  expect_equal(attr(curves, "statistic"), excess^2 / variance, tolerance = 1e-6)
  grDevices::pdf(NULL)
  expect_silent(plot(survival(people, "age", "income", by = "sex", observed = ">50K", intervals = 5, epsilon = 5)))
  grDevices::dev.off()
})

test_that("what is asked wrongly costs nothing, and what noise hides is missing", {
  before <- budget(people)$spent
  expect_error(survival(people, "sex", "income", observed = ">50K", epsilon = 1), class = "QueryError")
  expect_error(odds_ratio(people, "income", "sex", observed = "rich", exposed = "Male", epsilon = 1), class = "QueryError")
  expect_error(independence(people, "sex", "sex", epsilon = 1), class = "QueryError")
  expect_equal(budget(people)$spent, before)
  expect_warning(hidden <- odds_ratio(people, "income", "sex", observed = ">50K", exposed = "Male", epsilon = 0.01), "no power")
  expect_true(is.na(hidden$value))
})

test_that("each value of the event has noise of its own, and all without the event are censored", {
  set.seed(3)
  counts <- array(stats::rpois(3 * 4 * 2, 40), c(3, 4, 2))
  ends <- ends_of(counts, 2)
  expect_equal(ends[, 1, ], counts[, 2, ])
  expect_equal(ends[, 2, ], counts[, 1, ] + counts[, 3, ] + counts[, 4, ])
  null <- alike_parts(counts, 2, c(1, 5, 5))
  expect_equal(ends_of(null, 2), alike(ends, c(1, 5, 5)))
  curve <- function(parts) kaplan_meier(ends_of(parts, 2), c(1, 5, 5))
  one <- counts[, , 1, drop = FALSE]
  merged <- array(c(ends[, 2, 1], ends[, 1, 1]), c(3, 2, 1))
  expect_equal(curve(one), curve(merged))
  expect_equal(estimated(one, 0, curve)$deviation, estimated(merged, 0, curve)$deviation)
  expect_true(all(estimated(one, 50, curve)$deviation[-1] > estimated(merged, 50, curve)$deviation[-1]))
})
