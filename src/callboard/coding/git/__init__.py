"""Git, run so that no repository can run anything: repositories, work trees, snapshots, GitHub."""
