"""Names under which programs written for other schedulers find what they need: change the import, nothing else."""
