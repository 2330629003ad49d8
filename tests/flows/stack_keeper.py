"""Stop a stack and remove its folder once all test processes that use it have ended, however they ended.

Each of them holds a shared lock on a file while it lives; the system releases the lock even after SIGKILL. Run as a file:
`stack_keeper.py LOCK FOLDER`.
"""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path


def main() -> None:
    lock, folder = Path(sys.argv[1]), Path(sys.argv[2])
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not folder.exists():
            return
        if (folder / ".dpflow" / "ui" / "running.json").exists():
            subprocess.run([sys.executable, "-P", "-m", "flows", "ui", "--stop"], cwd=folder, check=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
