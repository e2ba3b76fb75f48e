"""Durable jobs: runs that survive whatever happens to their process, on one machine or on many.

The conversation is the checkpoint: a job is a row, its canisters are rows (`store`), and a worker drives it segment by
segment from what is written there. The extra `jobs` brings what this needs.
"""
