# Against a real server, which is named by PINQ_TEST_URL, PINQ_TEST_TOKEN and PINQ_TEST_CA. Its table
# is public here: 400 rows, half of them "Female"; `job` is missing in a quarter.

url <- Sys.getenv("PINQ_TEST_URL")
skip_if(!nzchar(url), "no server is named by PINQ_TEST_URL")
open_handle <- function() connect(url, token = Sys.getenv("PINQ_TEST_TOKEN"), verify = Sys.getenv("PINQ_TEST_CA"))
people <- open_handle()

test_that("a count is a data frame with an interval that holds the truth", {
  answer <- noisy_count(people, epsilon = 5)
  expect_equal(names(answer), c("value", "low", "high"))
  expect_true(answer$low <= answer$value && answer$value <= answer$high)
  expect_lt(abs(answer$value - 400), 12)
  expect_equal(attr(answer, "scale"), 0.2)
})

test_that("parts have their labels, and all of them cost once", {
  before <- budget(people)$spent
  answer <- noisy_count(partition(people, values("job"), cuts("age", c(30, 45.5))), epsilon = 5)
  expect_equal(budget(people)$spent - before, 5)
  expect_equal(names(answer), c("job", "age", "value", "low", "high"))
  expect_equal(nrow(answer), 4 * 3)
  expect_equal(answer$age[1:3], c("< 30", "30 to < 46", ">= 46"))
  expect_equal(answer$job[c(1, 4, 12)], c("clerk", "nurse", NA))
  expect_lt(max(abs(tapply(answer$value, answer$age, sum) - c(120, 64, 216)[c(1, 3, 2)])), 400)
  expect_lt(abs(sum(answer$value) - 400), 30)
})

test_that("sums and averages agree, and an average keeps to its bounds", {
  total <- noisy_sum(people, "age", epsilon = 10)$value
  mean <- noisy_avg(partition(people, values("sex")), "age", epsilon = 10)
  expect_lt(abs(total / 400 - 49.5), 2)
  expect_lt(max(abs(mean$value - c(49, 50))), 3)
  expect_true(all(mean$low >= 0 & mean$high <= 99))
})

test_that("dates are cut at dates, counted by year, and have a date as average", {
  years <- noisy_count(partition(people, calendar("born", "year")), epsilon = 5)
  expect_equal(years$born[c(1, 33)], c("1950", "1982"))
  expect_lt(max(abs(years$value[2:30] - 365.25 / 30)), 6)
  halves <- noisy_count(partition(people, cuts("born", as.Date("1970-01-01"))), epsilon = 5)
  expect_equal(halves$born, c("< 1970-01-01", ">= 1970-01-01"))
  expect_lt(abs(halves$value[1] - 244), 6)
  days <- noisy_count(partition(people, calendar("born", "weekday")), epsilon = 5)
  expect_equal(days$born[c(1, 7)], c("Monday", "Sunday"))
  mean <- noisy_avg(people, "born", epsilon = 20)
  expect_s3_class(mean$value, "Date")
  expect_lt(abs(as.numeric(mean$value - as.Date("1966-05-19"))), 60)
})

test_that("tables have every number with its interval, and cost their epsilon once", {
  before <- budget(people)$spent
  table <- crosstab(people, "sex", "job", epsilon = 5, margins = TRUE)
  expect_equal(budget(people)$spent - before, 5)
  total <- table[!is.na(table$job) & table$sex == "All" & table$job == "All", ]
  expect_lt(abs(total$value - 400), 12)
  expect_true(total$low <= 400 && total$high >= 400)
  expect_equal(nrow(table), 8 + 2 + 4 + 1)
  bins <- histogram(people, "age", bins = 5, by = "sex", epsilon = 5)
  expect_equal(nrow(bins), 10)
  expect_lt(max(abs(bins$value - 40)), 12)
  pdf(NULL)
  on.exit(dev.off())
  expect_length(plot(bins), 10)
})

test_that("quantiles and summaries find what is there", {
  before <- budget(people)$spent
  found <- quantiles(people, "age", c(0.1, 0.5, 0.9), epsilon = 20)
  expect_equal(budget(people)$spent - before, 20)
  expect_lt(max(abs(found$value - c(9.5, 49.5, 89.5))), 4)
  expect_true(all(found$low <= found$value & found$value <= found$high))
  born <- quantiles(people, "born", 0.5, epsilon = 20)
  expect_s3_class(born$value, "Date")
  expect_lt(abs(as.numeric(born$value - as.Date("1966-05-19"))), 300)
  described <- summary(people, "age", "job", epsilon = 10)
  expect_equal(described$statistic, c("rows", "mean", "25 %", "50 %", "75 %", rep("count", 4)))
  expect_lt(abs(as.numeric(described$value[2]) - 49.5), 4)
})

test_that("a table that the budget does not cover spends nothing, and no table spends more than it was given", {
  left <- budget(people)
  for (asked in list(
    function(epsilon) summary(people, "age", "job", epsilon = epsilon),
    function(epsilon) quantiles(people, "age", 0.5, epsilon = epsilon)
  )) {
    before <- nrow(history(people))
    expect_error(asked(left$remaining + 0.001), class = "BudgetExceeded")
    expect_equal(budget(people)$spent, left$spent)
    expect_equal(nrow(history(people)), before + 1)
    expect_match(history(people)$outcome[before + 1], "budget")
  }
  summary(people, "age", "job", epsilon = 0.4)
  spent <- budget(people)$spent - left$spent
  expect_true(spent <= 0.4 + 1e-12 && spent > 0.399999)
})

test_that("an interval of a quantile holds it as often as its level says", {
  truth <- c(30, 0, 20, 50, 0, 40, 60)
  set.seed(7)
  scale <- 4
  p <- exp(-1 / scale)
  hits <- vapply(1:300, function(i) {
    noise <- rgeom(7, 1 - p) - rgeom(7, 1 - p)
    4 %in% held(list(value = truth + noise, scale = scale), 0.49, 0.9) # 98 of 200 rows: in the fourth bin
  }, NA)
  expect_gt(mean(hits), 0.85)
})

test_that("an average says its own noise, and habits of data frames get a line to write", {
  expect_lt(attr(noisy_avg(people, "age", epsilon = 10), "scale"), 0.1)
  expect_output(print(noisy_avg(people, "age", epsilon = 10)), "noise of scale 0\\.0")
  for (habit in list(head, nrow, mean, median, summary, as.data.frame, function(h) h[1, ])) {
    expect_error(habit(people), "only noisy answers; to .* write .*Nothing was spent", class = "QueryError")
  }
  expect_error(people$age, "noisy_avg\\(h, \"age\", epsilon = 0.1\\)")
  expect_error(people[["job"]], "crosstab\\(h, \"job\", epsilon = 0.1\\)")
  expect_error(people$agee, "there is no column 'agee'")
  expect_true(max(nchar(capture.output(print(history(people))))) < 160)
})

test_that("one part can be taken, and cut again", {
  female <- part(partition(people, values("sex")), "Female")
  expect_lt(abs(noisy_count(female, epsilon = 5)$value - 200), 12)
  inside <- noisy_count(partition(female, groups("job", list("clerk", c("smith", NA)))), epsilon = 5)
  expect_equal(inside$job, c("clerk", "smith, missing"))
  expect_lt(max(abs(inside$value - c(100, 100))), 12)
  both <- part(partition(people, values("sex"), values("job")), "Male", NA)
  expect_lt(abs(noisy_count(both, epsilon = 5)$value - 100), 12)
  expect_error(part(partition(people, values("sex")), "Nobody"), "no part", class = "QueryError")
})

test_that("choices come back as specs that can be used", {
  chosen <- exp_mech(people, list(any_cut("age"), values("sex")), info_gain("income"), epsilon = 20)
  expect_match(chosen$choice, "^cuts\\(\"age\"")
  expect_equal(nrow(noisy_count(partition(people, attr(chosen, "specs")[[1]]), epsilon = 1)), 2)
  median <- exp_mech(people, any_cut("age"), balance(), epsilon = 20)
  expect_match(median$choice, "cuts\\(\"age\", c\\((49|50|51)\\)\\)")
  common <- exp_mech(partition(people, cuts("age", 60)), score = class_count("income"), epsilon = 5)
  expect_equal(common$choice, c("<=50K", ">50K"))
  each <- exp_mech(people, list(any_cut("age"), any_grouping("job")), gini("income"), epsilon = 5, each = TRUE)
  expect_equal(nrow(each), 2)
})

test_that("a preview and a reused answer cost nothing", {
  spent <- budget(people)$spent
  expect_equal(preview(people, "noisy_sum", column = "age", epsilon = 0.1)$cost, 0.1)
  expect_equal(budget(people)$spent, spent)
  first <- noisy_count(people, epsilon = 0.125)
  again <- noisy_count(people, epsilon = 0.125, reuse = TRUE)
  expect_equal(first$value, again$value)
  expect_equal(budget(people)$spent, spent + 0.125)
})

test_that("errors are those of the Python client", {
  error <- tryCatch(noisy_count(people, epsilon = 900), BudgetExceeded = identity)
  expect_equal(error$asked, 900)
  expect_equal(error$scope, "analyst")
  expect_match(conditionMessage(error), "Nothing was spent")
  expect_error(noisy_sum(people, "sex", epsilon = 1), class = "QueryError")
  expect_error(noisy_count(partition(people, cuts("age", 500)), epsilon = 1), "out of bounds", class = "QueryError")
  expect_error(connect(url, token = "pinq_wrong", verify = Sys.getenv("PINQ_TEST_CA")), class = "NotAuthorised")
  expect_error(connect(url, token = Sys.getenv("PINQ_TEST_TOKEN")), "verify", class = "Unavailable")
})

test_that("history has a line for each charge and refusal, with the answers", {
  lines <- history(people)
  expect_equal(lines$spent[nrow(lines)], budget(people)$spent)
  expect_s3_class(lines$at, "POSIXct")
  expect_true(any(is.na(lines$epsilon)))
  expect_equal(length(lines$answer[[1]]), 1)
})

test_that("a printed handle shows columns and budget, and no token", {
  shown <- paste(capture.output(print(people), str(people), print(schema(people))), collapse = "\n")
  expect_match(shown, "Female, Male")
  expect_false(grepl("pinq_", shown, fixed = TRUE) && grepl(Sys.getenv("PINQ_TEST_TOKEN"), shown, fixed = TRUE))
  expect_false(any(grepl(Sys.getenv("PINQ_TEST_TOKEN"), rawToChar(serialize(people, NULL, ascii = TRUE)), fixed = TRUE)))
})

test_that("a closed handle says what to do", {
  other <- open_handle()
  disconnect(other)
  expect_error(noisy_count(other, epsilon = 1), "connect()", class = "QueryError")
})

test_that("what would be ignored is refused, and nothing is spent", {
  before <- budget(people)$spent
  expect_error(odds_ratio(people, "income", "sex", observed = ">50K", exposed = "Male", epsilon = 1, level = 95), "between 0 and 1")
  expect_error(quantiles(people, "age", 0.5, epsilon = 1, level = 95), "between 0 and 1")
  expect_error(noisy_count(people, epsilon = 1, reuse = "yes"), "TRUE or FALSE")
  expect_error(histogram(people, "sex", bins = 3, epsilon = 1), "takes no `bins`")
  expect_error(partition(people, cuts("sex", 3)), "cuts are of a number")
  expect_error(partition(people, calendar("age", "year")), "has no dates")
  expect_error(exp_mech(people, list("sex"), gini("job"), epsilon = 1), "are made by values")
  expect_error(subset(people, age > 3), "gives no rows")
  expect_error(length(people), "noisy_count")
  expect_output(str(people), "people")
  expect_error(people$epsilon <- 3, "is not changed")
  expect_error(people[["epsilon"]] <- 3, "is not changed")
  expect_equal(budget(people)$spent, before)
})
