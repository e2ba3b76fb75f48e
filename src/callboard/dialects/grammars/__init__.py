"""The forms that the body of a call takes. Each module reads one, and spells it."""
