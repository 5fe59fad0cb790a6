"""What runs on Apache Spark: the session, the wave, and the data source for users' own jobs."""
