"""The coding agents (seed 003): a repository and a task in, a tested change back.

Owns the seven tools, the places where jobs work, the phases of a job and the evidence that it is done, and its record.
"""
