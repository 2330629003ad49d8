"""The `dpflow` command for programs that know the interpreter, but not where the command was installed: `python -m flows`."""

from flows.cli.command import main

main()
