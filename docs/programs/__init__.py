"""Programs that generate pages and pictures of the documentation from the code."""
