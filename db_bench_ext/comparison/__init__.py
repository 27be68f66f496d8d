"""What db_bench_ext measures, gathers and reports; results.schema.json describes its results.json."""
