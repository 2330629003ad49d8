"""What no run uses: mechanisms and theorems of the textbooks, for teaching and comparison. Each keeps its tests and its audit."""
