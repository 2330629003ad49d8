"""In which order the server's automations look at events, also after the server was killed and started again.

Each event of a run names the one before it, and Prefect holds it back until it has seen that one, for up to 15 minutes. It keeps in memory
what it has seen, so a new server would hold back the next event of every run that an earlier server knew.
"""

from uuid import UUID

import sqlalchemy as sa

from flows.prefect_compat import CausalOrdering as PrefectOrdering
from flows.prefect_compat import Event, PrefectDBInterface, now, provide_database_interface

STARTED = now("UTC")
"""When this server was started, or a moment later."""


class CausalOrdering(PrefectOrdering):
    """Prefect's order, in which an event that an earlier server has stored counts as seen. Prefect prescribes the name."""

    async def event_has_been_seen(self, event: UUID | Event) -> bool:
        """Tell whether nobody has to wait for an event any more."""
        number = event if isinstance(event, UUID) else event.id
        return await super().event_has_been_seen(number) or await _is_of_an_earlier_server(number)


async def _is_of_an_earlier_server(number: UUID) -> bool:
    db: PrefectDBInterface = provide_database_interface()
    stored = sa.select(db.Event.id).where(db.Event.id == number, db.Event.received < STARTED)
    async with db.session_context() as session:
        return (await session.execute(stored)).first() is not None
