"""Filters between a model's reply and whoever reads it: each takes one kind of doubtful content out, or marks it.

A filter is a Stage over the events of replies. Each filter can be left out, and none knows another. `docs/filters.md` has
the theory: what each of them looks for, what it does, and what it costs.
"""
