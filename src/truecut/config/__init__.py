"""The pipeline file: typed settings, loading, secrets."""
