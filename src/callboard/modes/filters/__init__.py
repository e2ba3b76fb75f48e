"""Filters between a model's reply and its readers: each removes or marks one kind of doubtful content.

A filter is a Stage over the events of replies. Each filter can be left out, and none knows another. `docs/filters.md`
explains what each filter looks for, what it does, and what it costs.
"""
