"""The order in which the server's automations process events, correct also after the server was killed and restarted.

Each event of a run names the one before it, and Prefect holds an event back, for up to 15 minutes, until it has seen that one. Prefect
keeps the seen events in memory, so a restarted server would hold back the next event of every run that it knew before.
"""

from uuid import UUID

import sqlalchemy as sa

from flows.prefect_compat import CausalOrdering as PrefectOrdering
from flows.prefect_compat import Event, PrefectDBInterface, now, provide_database_interface

STARTED = now("UTC")
"""When this server started, or a moment later."""


class CausalOrdering(PrefectOrdering):
    """Prefect's ordering, except that an event stored by an earlier server counts as seen. Prefect prescribes the class name."""

    async def event_has_been_seen(self, event: UUID | Event) -> bool:
        """Return whether an event was seen, so that no other event has to wait for it."""
        number = event if isinstance(event, UUID) else event.id
        return await super().event_has_been_seen(number) or await _is_of_an_earlier_server(number)


async def _is_of_an_earlier_server(number: UUID) -> bool:
    db: PrefectDBInterface = provide_database_interface()
    stored = sa.select(db.Event.id).where(db.Event.id == number, db.Event.received < STARTED)
    async with db.session_context() as session:
        return (await session.execute(stored)).first() is not None
