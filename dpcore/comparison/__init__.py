"""Compare a release with the true table, for the steward alone: `dpflow report`.

Everything here is private, and goes to the private folder only. The exception is `figures`, which buys a few noisy figures that may be
published.
"""
