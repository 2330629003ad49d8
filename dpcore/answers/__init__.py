"""Answers to questions about a release, from its folder alone. Nothing is charged, and no raw data is read."""
