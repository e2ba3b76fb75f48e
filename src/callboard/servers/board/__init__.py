"""The board: a web page to watch jobs, approve calls and compare replies. Import `app` to build it."""
