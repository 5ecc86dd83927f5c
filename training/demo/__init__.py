"""A demonstration of learning: a model made from scratch, on two cores, in minutes."""
