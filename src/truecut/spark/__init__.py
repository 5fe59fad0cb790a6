"""What runs on Apache Spark: the session and the wave."""
