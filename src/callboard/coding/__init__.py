"""The coding agents: a repository and a task in, a tested change back.

`agents` run jobs and `chat` conversations; `jobs` holds their records. They work in a `workspace` with the seven `tools`,
which use `edits`, `outlines`, `search` and `test_runners`; `git` makes the trees of jobs.
"""
