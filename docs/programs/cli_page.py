"""Generate the command line reference from the argparse parsers."""

import argparse
from collections.abc import Iterator

from dpcore.cli.main import parser
from dpcore.cli.verbs import VERBS
from flows.verbs import VERBS as WITH_PREFECT

_INTRODUCTION = """\
# Command line

This page is generated from the parsers of the installed code. `dpflow VERB --help` prints the same at a terminal.

"""


def page() -> str:
    """Return the page: every verb with its usage, its arguments and its options."""
    root = whole_parser()
    listed = "\n".join(_overview(root))
    exit_codes = f"{(root.epilog or '').capitalize()}.\n\n"
    return _INTRODUCTION + exit_codes + listed + "\n\n" + "\n".join(_sections(root))


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser of the installed command, with the arguments of every verb."""
    return parser(WITH_PREFECT, loaded=[*VERBS, *WITH_PREFECT])


def verbs(parser: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return the verbs below a parser, each with its own parser and its line of help."""
    for action in parser._actions:  # noqa: SLF001  argparse has no public API for this
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  likewise
            told = {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001  likewise
            return {name: (one, told.get(name, "")) for name, one in action.choices.items()}
    return {}


def _overview(root: argparse.ArgumentParser) -> Iterator[str]:
    yield "| verb | what it does |\n|---|---|"
    for name, (one, told) in verbs(root).items():
        yield f"| [`dpflow {name}`](#{_anchor(one.prog)}) | {_cell(told)} |"


def _sections(above: argparse.ArgumentParser) -> Iterator[str]:
    for one, told in verbs(above).values():
        yield f"## `{one.prog}` {{ #{_anchor(one.prog)} }}\n\n{_sentence(told)}\n"
        below = verbs(one)
        if below:
            yield "| verb | what it does |\n|---|---|"
            yield from (f"| [`{it.prog}`](#{_anchor(it.prog)}) | {_cell(text)} |" for it, text in below.values())
            yield f"\n{_sentence(one.epilog or '')}\n"
            yield from _sections(one)
        else:
            yield f"```text\n{one.format_usage().removeprefix('usage: ').rstrip()}\n```\n"
            yield from _arguments(one)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield "| argument | meaning |\n|---|---|"
    for action in parser._actions:  # noqa: SLF001  see above
        if not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:  # noqa: SLF001  see above
            needed = "" if not action.option_strings or not action.required else " *(required)*"
            yield f"| `{_written(action)}` | {_cell(action.help or '')}{needed} |"
    yield ""


def _written(action: argparse.Action) -> str:
    """Return how an argument is written: `--epsilon E`, or `SPEC`."""
    value = "" if action.nargs == 0 else _value(action)
    return " ".join(filter(None, [", ".join(action.option_strings), value]))


def _value(action: argparse.Action) -> str:
    if action.metavar:
        return str(action.metavar)
    if action.choices:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper()


def _anchor(prog: str) -> str:
    return prog.replace(" ", "-")


def _cell(text: str) -> str:
    """Format a text for a cell of a Markdown table."""
    return " ".join(text.replace("%%", "%").split()).replace("|", "\\|")


def _sentence(text: str) -> str:
    """Format a line of help as a sentence. An empty line stays empty."""
    words = _cell(text)
    return f"{words[:1].upper()}{words[1:]}." if words else ""
