"""The board: a web page to see what runs, to approve it, and to compare. `app` makes it; nothing here is imported before."""
