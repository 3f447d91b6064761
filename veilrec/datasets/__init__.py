"""The datasets: a function each, giving `Interactions`; one file, one source."""
