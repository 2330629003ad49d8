"""How roughly models are fitted where nobody looks at what they say: a few evaluations instead of hundreds."""

FEW_TRIES = dict.fromkeys(("FIRST_TRIES", "LAST_TRIES", "FEWEST_LAST_TRIES"), 5)
