"""The verbs of the HTTP service: serve-answers, and analyst add, show and remove."""

import argparse
from dataclasses import asdict
from typing import Any

from dpcore.cli.arguments import Subparsers, add_verb, argument, one_of
from dpcore.cli.output import Answer, table
from dpcore.cli.session import OF_SESSION
from dpcore.cli.verbs import VERBS
from dpcore.reporting.formatting import at_most, down

NAME = argument("name", metavar="NAME", help="the analyst's name: letters, digits, dots, dashes, underscores")
MORE = (
    "; analysts send their token with each request, or type it into the console page at /. Stop with Ctrl-C: "
    "nothing is lost, and the session stays open"
)


def add_verbs(verbs: Subparsers) -> None:
    """Add the verbs to the parser."""
    add_verb(
        verbs,
        "serve-answers",
        VERBS["serve-answers"].about,
        *OF_SESSION,
        argument("--port", metavar="P", type=int, default=0, help="the port; default: any free one, which is printed"),
        argument(
            "--host",
            metavar="H",
            default="127.0.0.1",
            help="the address to listen on; default: 127.0.0.1, this machine only",
        ),
        argument(
            "--name",
            metavar="N",
            action="append",
            default=[],
            help="a host name under which the service is reached, such as stats.example.org behind a TLS proxy; can be repeated",
        ),
        argument(
            "--rate",
            metavar="R",
            type=float,
            default=20.0,
            help="requests per second that an analyst may send; default: 20",
        ),
        run=_serve,
        more=MORE,
    )

    analyst = verbs.add_parser("analyst", help=VERBS["analyst"].about)
    actions = analyst.add_subparsers(required=True, metavar="ACTION")
    add_verb(
        actions,
        "add",
        "give an analyst a token and a cap inside a session's budget; a new token if the analyst has one already",
        *OF_SESSION,
        NAME,
        one_of(
            argument("--epsilon", metavar="E", type=float, help="the most that the analyst may spend, as an epsilon"),
            argument(
                "--share", metavar="S", type=float, help="the same as a share of the session's budget, such as 0.25"
            ),
        ),
        run=_add,
        more="; the cap limits what the analyst spends, not what the analyst learns: what others have bought is free for all",
    )
    add_verb(
        actions,
        "remove",
        "remove an analyst: the token stops working, and nothing more is charged",
        *OF_SESSION,
        NAME,
        run=_remove,
    )
    add_verb(actions, "show", "show the analysts of a session, with what they have spent", *OF_SESSION, run=_show)


def _serve(arguments: argparse.Namespace) -> Answer:
    from dpcore.service.serve import serve  # noqa: PLC0415  other verbs start faster without it

    session = serve(
        arguments.spec,
        session=arguments.session,
        host=arguments.host,
        port=arguments.port,
        names=arguments.name,
        rate=arguments.rate,
    )
    return Answer({"session": session}, f"stopped; session {session} stays open")


def _add(arguments: argparse.Namespace) -> Answer:
    from dpcore.session.analysts import add_analyst  # noqa: PLC0415

    issued = add_analyst(
        arguments.spec,
        arguments.name,
        epsilon=arguments.epsilon,
        share=arguments.share,
        session=arguments.session,
    )
    text = (
        f"analyst {issued.analyst} may spend epsilon {at_most(issued.epsilon)} of session {issued.session}\n"
        f"token: {issued.token}\n"
        "It is shown only now: the ledger holds its hash. Lost it? Run this command again for a new one."
    )
    return Answer(asdict(issued), text)


def _remove(arguments: argparse.Namespace) -> Answer:
    from dpcore.session.analysts import remove_analyst  # noqa: PLC0415

    removed = remove_analyst(arguments.spec, arguments.name, session=arguments.session)
    spent = at_most(removed["epsilon"]["spent"])
    return Answer(removed, f"analyst {removed['analyst']} was removed, with epsilon {spent} spent")


def _show(arguments: argparse.Namespace) -> Answer:
    from dpcore.session.analysts import listed_analysts  # noqa: PLC0415

    listed = listed_analysts(arguments.spec, session=arguments.session)
    session, analysts = listed["session"], listed["analysts"]
    if not analysts:
        text = f"session {session} has no analysts; add one with: dpflow analyst add SPEC NAME --share 0.25"
        return Answer(listed, text)
    rows: list[Any] = [("analyst", "cap", "spent", "left", "")]
    for analyst in analysts:
        epsilon, note = analyst["epsilon"], "removed" * analyst["removed"]
        rows.append(
            (analyst["analyst"], at_most(epsilon["cap"]), at_most(epsilon["spent"]), down(epsilon["remaining"]), note)
        )
    return Answer(listed, f"session {session}, in epsilon\n{table(rows, right=('cap', 'spent', 'left'))}")
