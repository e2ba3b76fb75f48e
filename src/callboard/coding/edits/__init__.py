"""Changes of text: from a text to a text, and why not.

Knows nothing of files. Law: nothing is changed on a guess; what does not fit is refused with the text that would.
"""
