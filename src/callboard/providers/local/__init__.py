"""The files of local models: which can be had, how they come, where they stand."""

from callboard.providers.local.download import (
    Progress,
    ProgressEvent,
    Received,
    SourceRefused,
    SourceTried,
    Verifying,
    Waiting,
    pull,
)
from callboard.providers.local.model_files import (
    Catalogue,
    CatalogueEntry,
    Hub,
    Wheels,
    directory,
    locate,
    remove,
    shipped_catalogue,
)

__all__ = [
    "Catalogue",
    "CatalogueEntry",
    "Hub",
    "Progress",
    "ProgressEvent",
    "Received",
    "SourceRefused",
    "SourceTried",
    "Verifying",
    "Waiting",
    "Wheels",
    "directory",
    "locate",
    "pull",
    "remove",
    "shipped_catalogue",
]
