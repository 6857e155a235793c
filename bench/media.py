"""Files of posts downloaded and stored by a worker, compared with Telethon's `download_media` alone.

python run.py bench media [files] [rounds]

Rates count from the end of the first file to the end of the last one, so that neither side pays for its start.
"""

import sys
from collections.abc import Sequence
from statistics import median

from ._measuring import Report, folder, interleaved, ratio, run
from ._media import Downloaded, Downloading, download
from ._telegram import WARM_UP, Town, serving

# Bytes of the files, again and again: photos, documents, short and longer videos.
SIZES = (90_000, 300_000, 1_500_000, 6_000_000)
CHANNEL = "files"


async def measure(report: Report, files: int, rounds: int) -> None:
    """Measure bytes per second, and CPU per megabyte of the downloading process."""
    sizes = [SIZES[number % len(SIZES)] + number for number in range(files)]
    town = Town(channels={WARM_UP: 1}, files={CHANNEL: sizes})
    with folder() as place, serving(town) as served:
        names = iter(range(1_000_000))

        def told(*, is_ours: bool) -> Downloading:
            where = place / str(next(names))
            url = f"sqlite:///{where}/media.db" if is_ours else ""
            return Downloading(
                session=served.session, channel=CHANNEL, files=files, folder=str(where), database_url=url
            )

        async def bare() -> Downloaded:
            return await download("bare", told(is_ours=False))

        async def ours() -> Downloaded:
            return await download("worker", told(is_ours=True))

        reference, measured = await interleaved(rounds, bare, ours)
    for one in (*reference, *measured):
        if one.bytes != sum(sizes):
            raise SystemExit(f"{one.bytes:,} of {sum(sizes):,} bytes were stored")
    _add(report, measured, reference)


def _add(report: Report, measured: Sequence[Downloaded], reference: Sequence[Downloaded]) -> None:
    rates, others = ([one.rate for one in of] for of in (measured, reference))
    report.add(
        "bytes of files downloaded, hashed and stored",
        f"{median(rates) / 1e6:,.1f} MB/s",
        f"{median(others) / 1e6:,.1f} MB/s download_media",
        ratio(rates, others),
        ">= 0.8x",
    )
    spent, spent_bare = ([one.cpu / one.bytes * 1e9 for one in of] for of in (measured, reference))
    report.add(
        "CPU of the worker per megabyte",
        f"{median(spent):,.1f} ms",
        f"{median(spent_bare):,.1f} ms download_media",
        ratio(spent, spent_bare),
    )


async def main(files: int = 40, rounds: int = 5) -> None:
    report = Report(f"{files} files of 90 KB to 6 MB of one channel, median (range) of {rounds} interleaved rounds")
    await measure(report, files, rounds)
    report.print()


if __name__ == "__main__":
    run(lambda: main(*map(int, sys.argv[1:])))
