"""A session served to several analysts over HTTP: prices, answers and budgets as JSON, and a console page for people."""
