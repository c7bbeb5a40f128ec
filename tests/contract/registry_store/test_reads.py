"""What every store gives to readers and watchers."""

from __future__ import annotations

from dataclasses import replace

from sless_registry.domain import lifecycle
from sless_registry.domain.record import Changes, Record, changes
from sless_registry.domain.resources import Kind, Served
from sless_registry.ports import ResourceType, Store

from tests.support.registry_domain import NAMESPACE, NOW, a_configuration, a_record, at, serving, uploaded

ALL = frozenset(ResourceType)
FUNCTIONS = frozenset({ResourceType.FUNCTION, ResourceType.PURGE})


async def put(store: Store, *records: Record) -> int:
    """Write new records in one transaction; gives the revision."""
    made = Changes()
    for record in records:
        made = made + changes(None, record)
    async with store.transaction() as transaction:
        return await transaction.write(made)


def named(name: str, kind: Kind = Kind.FUNCTION) -> Record:
    """A new function of this name."""
    return lifecycle.created(
        uid=name.ljust(32, "0"), namespace=NAMESPACE, name=name, kind=kind, configuration=a_configuration(), now=NOW
    )


async def test_functions_are_listed_by_name_in_pages(store: Store) -> None:
    await put(store, named("b"), named("a-b"), named("a"), named("ab"), named("s", Kind.SERVICE))
    await put(store, lifecycle.deleted(named("gone"), at(1)))

    async def names(after: str, limit: int, kind: Kind | None = None) -> list[str]:
        return [each.name for each in await store.functions(NAMESPACE, kind=kind, after=after, limit=limit)]

    assert await names("", 2) == ["a", "a-b"]
    assert await names("a-b", 9) == ["ab", "b", "s"]
    assert await names("", 9, Kind.SERVICE) == ["s"]
    assert await names("", 9, Kind.FUNCTION) == ["a", "a-b", "ab", "b"]
    assert list(await store.functions("sless-0000000000000000", kind=None, after="", limit=9)) == []


async def test_versions_are_listed_newest_first_in_pages(store: Store) -> None:
    record = uploaded(uploaded(uploaded(a_record(), "a"), "b"), "c")
    await put(store, record)
    uid = record.function.uid

    async def numbers(before: int, limit: int) -> list[int]:
        return [version.number for version in await store.versions(uid, before=before, limit=limit)]

    assert await numbers(0, 2) == [3, 2]
    assert await numbers(2, 9) == [1]
    newest = await store.version(uid, 0)
    assert newest is not None
    assert newest.number == 3
    assert await store.version(uid, 4) is None
    assert await store.version("other", 0) is None


async def test_a_workload_is_read_at_one_moment(store: Store) -> None:
    record = serving()
    async with store.transaction() as transaction:
        namespace = await transaction.ensure_namespace(NAMESPACE, NOW)
        await transaction.write(changes(None, record))

    source = await store.workload(record.function.uid)

    assert source is not None
    assert source.function == replace(record.function, revision=1)
    assert source.version == source.serving == replace(record.versions[0], revision=1)
    assert source.function.served == Served(2, record.function.configuration)
    assert (source.namespace_number, source.revision) == (namespace.number, 1)


async def test_a_workload_without_a_version_or_a_namespace_says_so(store: Store) -> None:
    await put(store, named("a"))
    source = await store.workload(named("a").function.uid)
    assert source is not None
    assert (source.version, source.serving, source.namespace_number) == (None, None, 0)

    await put(store, lifecycle.deleted(named("b"), at(1)))
    assert await store.workload(named("b").function.uid) is None
    assert await store.workload("other") is None


async def test_changes_come_in_the_order_of_revisions_and_once_each(store: Store) -> None:
    first, second = named("b"), named("a")
    await put(store, first)
    await put(store, second)
    changed = first.with_function(replace(first.function, message="changed"))
    async with store.transaction() as transaction:
        await transaction.write(changes(first, changed))

    page = await store.changes(ALL, after=0, limit=100)

    assert page.revision == page.span.head == 3
    assert [(each.name, each.revision, each.message) for each in page.functions] == [
        ("a", 2, second.function.message),
        ("b", 3, "changed"),
    ]


async def test_a_page_of_changes_is_bounded_and_leaves_newer_states_to_later_pages(store: Store) -> None:
    first, second, third = named("a"), named("b"), named("c")
    for record in (first, second, third):
        await put(store, record)
    async with store.transaction() as transaction:
        changed = first.with_function(replace(first.function, message="changed"))
        await transaction.write(changes(first, changed))

    seen, position = [], 0
    while position < 4:
        page = await store.changes(ALL, after=position, limit=2)
        assert page.revision > position
        position = page.revision
        seen.append([(each.name, each.revision) for each in page.functions])

    assert seen == [[("b", 2)], [("c", 3), ("a", 4)]]


async def test_a_page_has_all_of_its_last_revision(store: Store) -> None:
    await put(store, *(named(name) for name in "abcde"))
    await put(store, named("f"))

    page = await store.changes(ALL, after=0, limit=2)

    assert page.revision == 1
    assert [each.name for each in page.functions] == list("abcde")
    assert [event.revision for event in await store.events(after=0, limit=2)] == [1] * 5


async def test_only_the_resources_asked_for_are_given(store: Store) -> None:
    record = uploaded(a_record())
    await put(store, record)
    async with store.transaction() as transaction:
        gone = named("gone")
        await transaction.write(changes(None, gone))
    async with store.transaction() as transaction:
        await transaction.write(Changes(purged_functions=(gone.function.uid,)))

    functions = await store.changes(FUNCTIONS, after=0, limit=100)
    versions = await store.changes(frozenset({ResourceType.VERSION}), after=0, limit=100)

    assert [each.name for each in functions.functions] == ["hello"]
    assert functions.versions == ()
    assert functions.purged == (gone.function.uid,)
    assert not versions.functions
    assert not versions.purged
    assert [version.number for version in versions.versions] == [1]
    assert versions.revision == functions.revision == 3


async def test_no_changes_are_a_page_up_to_the_newest_revision(store: Store) -> None:
    await put(store, named("a"))

    page = await store.changes(ALL, after=1, limit=100)

    assert (page.revision, page.functions, page.versions, page.purged) == (1, (), (), ())


async def test_everything_is_read_in_pages_by_identity(store: Store) -> None:
    await put(store, uploaded(named("b")), named("a"))
    await put(store, lifecycle.deleted(named("c"), at(1)))

    first = await store.all_functions(after="", limit=2)
    rest = await store.all_functions(after=first[-1].uid, limit=2)

    assert [function.name for function in (*first, *rest)] == ["a", "b", "c"]
    assert [version.uid for version in await store.all_versions(after="", limit=9)] == ["version-1"]
    assert list(await store.all_versions(after="version-1", limit=9)) == []
