"""How the death of a process is noticed: by locks that the kernel or PostgreSQL frees when the process ends."""
