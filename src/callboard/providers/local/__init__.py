"""Files of local models: the catalogue, the downloads and the directory."""
