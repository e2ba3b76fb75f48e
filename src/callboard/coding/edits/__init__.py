"""Edits of texts: from a text and an edit to a new text, or to the reason why it does not fit.

Law: no edit is a guess; one that does not fit is refused with the part of the text that it probably meant.
"""
