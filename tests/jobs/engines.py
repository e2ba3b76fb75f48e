"""The engine that processes of tests run jobs with."""

from callboard.configuration.jobs import JobSettings, TemporalSettings
from callboard.jobs.services import make_engine


def open_engine(database, address):
    """The embedded engine, or Temporal if there is the address of a server."""
    name = "temporal" if address else "embedded"
    return make_engine(database, JobSettings(engine=name, temporal=TemporalSettings(address=address)))
