"""Run the `dpflow` command as `python -m flows`, for programs that don't know where the command was installed."""

from flows.cli.command import main

main()
