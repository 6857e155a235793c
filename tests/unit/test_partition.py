"""Which worker is preferred for a key."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.coordination.partition import Partition
from floodmark.rules.partition import choose_owner

WORKERS = st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=8)
KEYS = [f"telegram:reader{number}" for number in range(200)]


@pytest.mark.spec("T15")
@given(WORKERS, st.text(min_size=1, max_size=8))
def test_a_worker_that_joins_or_leaves_moves_only_its_share(workers: set[str], one: str) -> None:
    with_it, without = workers | {one}, workers - {one}
    for key in KEYS:
        before, after = choose_owner(key, with_it), choose_owner(key, without)
        assert before in (one, after)


@pytest.mark.spec("T15")
@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8, unique=True), st.text())
def test_all_processes_agree(workers: list[str], key: str) -> None:
    assert choose_owner(key, workers) == choose_owner(key, reversed(workers))


def test_the_shares_are_of_similar_size() -> None:
    shares = Counter(choose_owner(key, [f"worker-{number}" for number in range(4)]) for key in KEYS)
    assert all(30 <= share <= 70 for share in shares.values())
    assert len(shares) == 4


def test_a_process_without_workers_has_everything_to_itself() -> None:
    assert choose_owner("a", []) is None
    partition = Partition("me")
    assert partition.is_mine("a")
    assert not partition.is_shared


def test_a_partition_reports_each_change_once() -> None:
    partition, changes = Partition("me"), list[frozenset[str]]()
    partition.listen(lambda: changes.append(partition.workers))
    partition.update(["me"])
    partition.update(["me"])
    partition.update(["other", "me"])
    partition.update(["me", "other"])
    assert changes == [frozenset(["me"]), frozenset(["me", "other"])]


@pytest.mark.parametrize(("workers", "is_shared"), [(["me"], False), (["me", "other"], True), (["a", "b"], False)])
def test_only_several_workers_share_the_work(workers: list[str], is_shared: bool) -> None:
    partition = Partition("me")
    partition.update(workers)
    assert partition.is_shared == is_shared


def test_a_process_that_takes_no_executions_gives_everything_up() -> None:
    partition = Partition("me")
    partition.update(["other"])
    assert not partition.is_mine("a")
