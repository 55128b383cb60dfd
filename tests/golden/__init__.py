"""What Understudy 0.5.0 gave, kept as files, and the tests that compare today's code with them."""
