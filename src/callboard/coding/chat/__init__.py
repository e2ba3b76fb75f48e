"""A chat: a person and a model in the person's own tree."""
