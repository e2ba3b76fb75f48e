"""The testing kit: backends and models that say what they were told to say."""

from callboard.testing.backend import Asked, Cut, FakeBackend, Html, Raw, Silence, Status

__all__ = ["Asked", "Cut", "FakeBackend", "Html", "Raw", "Silence", "Status"]
