"""Facts about models and endpoints, and how layers of facts are combined."""

from callboard.profiles.model_names import matches, model_names, normalise, split_provider
from callboard.profiles.profile import (
    GateKind,
    ModeName,
    OnRepeatedCall,
    Prices,
    Pricing,
    Profile,
    describe_day_spent,
    describe_spent,
    format_cost,
    seconds_to_next_day,
)
from callboard.profiles.remarks import Examination
from callboard.profiles.resolution import Resolution, facts_for, is_of_host, prices_for, providers, resolve

__all__ = [
    "Examination",
    "GateKind",
    "ModeName",
    "OnRepeatedCall",
    "Prices",
    "Pricing",
    "Profile",
    "Resolution",
    "describe_day_spent",
    "describe_spent",
    "facts_for",
    "format_cost",
    "is_of_host",
    "matches",
    "model_names",
    "normalise",
    "prices_for",
    "providers",
    "resolve",
    "seconds_to_next_day",
    "split_provider",
]
