"""The facts about models and endpoints, and how they are put together."""

from callboard.profiles.model_names import matches, model_names, normalise, split_provider
from callboard.profiles.profile import GateKind, ModeName, OnRepeatedCall, Prices, Profile
from callboard.profiles.remarks import Examination
from callboard.profiles.resolution import Resolution, facts_for, providers, resolve

__all__ = [
    "Examination",
    "GateKind",
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
