"""Jobs that this process has read before. They may be outdated: each use must compare the version."""

from collections import OrderedDict

from floodmark.model.job import Job

from .jobs import Jobs

_MOST = 1000


class KnownJobs:
    """Reads jobs, and remembers those that were read last."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs, self._known = jobs, OrderedDict[str, Job]()

    async def get(self, text: str) -> Job:
        """Return a job as `Jobs.get` does, or as it was when it was read."""
        typed = text.strip()
        known = self._known.get(typed)
        if known is not None:
            self._known.move_to_end(typed)
            return known
        job = await self._jobs.get(text)
        # Not by the beginning of a name: another job may begin with it too, or have it as its name.
        if typed in (job.name, job.job_id):
            self._known[typed] = job
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return job

    def forget(self, text: str) -> None:
        """Read this job again the next time."""
        self._known.pop(text.strip(), None)
