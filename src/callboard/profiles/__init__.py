"""What is known of models, and how it is put together."""

from callboard.profiles.names import matches, normalise, split_provider
from callboard.profiles.prices import Prices
from callboard.profiles.profile import ModeName, Profile
from callboard.profiles.resolution import Resolution, providers, resolve

__all__ = [
    "ModeName",
    "Prices",
    "Profile",
    "Resolution",
    "matches",
    "normalise",
    "providers",
    "resolve",
    "split_provider",
]
