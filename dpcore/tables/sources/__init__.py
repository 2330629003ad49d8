"""Read raw tables: CSV, Parquet, Arrow, databases and tables in memory. Each record is read independently of the others."""
