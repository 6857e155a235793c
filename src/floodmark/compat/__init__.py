"""Names that programs written for other schedulers import: change the import and nothing else."""
