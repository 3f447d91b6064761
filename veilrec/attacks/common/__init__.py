"""Common: readings, classifiers and gradients that several attacks share."""
