"""Read raw tables: CSV, Parquet, Arrow, databases and tables in memory, each record by itself."""
