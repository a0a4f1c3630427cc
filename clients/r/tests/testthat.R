library(testthat)
library(pinq)

test_check("pinq")
