"""The comments below a post, as HTML."""

from html import escape


def paragraphs(text):
    """Each block of lines that a blank line ends is a paragraph."""
    blocks = [block.strip() for block in text.split("\n\n")]
    return "".join(f"<p>{escape(block)}</p>" for block in blocks if block)


def comment(author, text):
    """One comment."""
    name = author.strip() or "anonymous"
    return f'<article class="comment"><h3>{name}</h3>{paragraphs(text)}</article>'


def thread(comments):
    """All comments of a post, given as pairs of author and text."""
    if not comments:
        return "<p>No comments yet.</p>"
    return "\n".join(comment(author, text) for author, text in comments)
