"""What a running pipeline tells over HTTP: metrics, and whether it is well."""
