"""The one place where a mechanism meets the data."""
