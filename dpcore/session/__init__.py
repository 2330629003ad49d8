"""The interactive curator: a session answers questions from a public model, and buys a measurement when that is not accurate enough."""
