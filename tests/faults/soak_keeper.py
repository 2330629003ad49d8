"""End every process of a soak once the one that started them is gone, however it ended. Run as a file: `soak_keeper.py FOLDER...`.

Each folder is the mark of some processes, see `flows.server.background`; they are ended in the order in which they are named. Standard
input is a pipe that only the soak holds: its end means that the soak has ended, or was killed.
"""

import sys
from pathlib import Path

from flows.server import background

PATIENCE_SECONDS = 20.0


def main() -> None:
    """Wait for the end of standard input, then leave nothing running."""
    sys.stdin.buffer.read()
    for folder in map(Path, sys.argv[1:]):
        while found := background.all_of(folder):  # one that is being ended may just have started another
            background.end(found, patience=PATIENCE_SECONDS)


if __name__ == "__main__":
    main()
