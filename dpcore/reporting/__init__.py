"""Public results for people: overviews, formatted amounts and plots."""
