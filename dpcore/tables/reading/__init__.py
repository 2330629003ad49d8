"""Reading of private values: total functions from the values of a column to the codes of a declared attribute, row by row."""
