"""What is known of models, and how it is put together."""

from callboard.profiles.model_names import matches, model_names, normalise, split_provider
from callboard.profiles.prices import Prices
from callboard.profiles.profile import ModeName, OnRepeatedCall, Profile
from callboard.profiles.resolution import Resolution, facts_for, providers, resolve

__all__ = [
    "ModeName",
    "OnRepeatedCall",
    "Prices",
    "Profile",
    "Resolution",
    "facts_for",
    "matches",
    "model_names",
    "normalise",
    "providers",
    "resolve",
    "split_provider",
]
