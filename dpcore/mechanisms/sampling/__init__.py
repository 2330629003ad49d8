"""Exact samplers: the operating system's entropy, coins, integer noise and selections."""
