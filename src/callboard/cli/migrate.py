"""`callboard migrate`: create the tables before other processes start."""

from __future__ import annotations

import typer

from callboard.cli.options import Store
from callboard.extras import require_extra


def migrate(store: Store = "") -> None:
    """Create the tables of the jobs, and of a gateway's store, and exit.

    Jobs are in the database of CALLBOARD_DATABASE_URL. All processes create missing tables themselves. This command is
    for installations that prepare the database before they start any process.
    """
    require_extra("jobs", *(["gateway", "store"] if store else []))
    from callboard.jobs.database import Database  # noqa: PLC0415  # not for --help

    with Database.open() as database:
        typer.echo(f"the tables of jobs are in {database.place}")
    if store:
        from callboard.servers.gateway import GatewaySettings  # noqa: PLC0415  # as above
        from callboard.servers.gateway.server import check_store  # noqa: PLC0415  # the extra's

        check_store(GatewaySettings(backends=(), store=store))
        typer.echo("the tables of the gateway are in its store")
