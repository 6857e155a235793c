"""Migration from an older scheduler, and lists of jobs in files.

shadow.py       records what Floodmark would have fired for the jobs of the old scheduler, and fires nothing
parity.py       compares that with the runs of the old scheduler (pure)
crontab.py      reads crontab files (pure)
apscheduler.py  reads the job store of APScheduler 3, without running code of the store
job_lists/      reads targets and jobs from files, and writes jobs as a file
"""
