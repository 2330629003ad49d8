"""Marginals: which are asked for, at which resolutions, which cells are impossible, and what was measured of them."""
