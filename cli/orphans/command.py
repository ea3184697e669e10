"""`vela ledger`, with its command `orphans`: ledgers that no record names, listed or deleted.

The other commands are those of `inspection`. This one needs the records of a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import trio

from cli.orphans.rule import AGE_MINUTES_MIN, Standing
from cli.orphans.search import delete_orphans, unnamed_ledgers
from inspection.access import access
from inspection.command import command, of_store, refusing, with_tree
from inspection.ledgers import SESSION_S
from inspection.output import Output
from metadata.opening import open_store
from runtime.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from cli.orphans.search import Outcome, Unnamed
    from inspection.output import Value
    from metadata.read_only_tree import Tree

_AGE_MINUTES: Final = 60


@command.command("orphans")
@click.option("--delete", "is_deleting", is_flag=True, help="Delete the orphans, and nothing else.")
@click.option(
    "--older-than-minutes",
    "age_minutes_min",
    type=click.IntRange(AGE_MINUTES_MIN),
    default=_AGE_MINUTES,
    show_default=True,
    help="A younger ledger is kept: it may be in the middle of being recorded.",
)
@of_store
def orphans(
    is_deleting: bool,
    age_minutes_min: int,
    url: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Ledgers that no topic, subscription or schema names.

    A broker that is killed between two writes leaves them. `orphan`: whose it was is known, and
    nothing will name it. `kept`: it may still be recorded. `unknown`: who made it is not known,
    such as functions, packages or another application; it is never deleted. If a record that may
    name ledgers is damaged there are no rows, and the record is named.

    With --delete, ledgers of topics and schemas without any record are deleted when they have been
    seen for 15 minutes. Brokers open the topics again to which an orphan belonged; clients
    reconnect. Do not use it where brokers of several clusters keep their ledgers in one place.
    """
    output = Output(as_json=as_json)
    if is_deleting:
        if url is None or data_dir is not None:
            raise click.UsageError(
                "--delete needs --metadata-store; `vela standalone` deletes orphans when it starts"
            )
        with refusing():
            trio.run(_delete, url, age_minutes_min, output)
        return

    async def look(tree: Tree) -> None:
        for each in await unnamed_ledgers(tree, age_minutes_min, SystemClock().wall_ms()):
            output.row(each.verdict.standing.value, _row(each))

    with_tree(url, data_dir, look)


def _row(unnamed: Unnamed) -> dict[str, Value]:
    metadata, maker = unnamed.metadata, unnamed.verdict.maker
    return {
        "ledger": unnamed.ledger_id,
        "state": None if metadata is None else metadata.state.name,
        "length": metadata.length if metadata is not None and metadata.is_closed else None,
        "ctime": None if metadata is None else metadata.ctime_ms or None,
        "record": None if maker is None else (*maker.cursors, maker.record)[0],
        "reason": unnamed.verdict.reason,
        "custom": None
        if metadata is None or maker is not None
        else {
            key: value.decode(errors="backslashreplace")
            for key, value in metadata.custom_metadata.items()
        },
    }


async def _delete(url: str, age_minutes_min: int, output: Output) -> None:
    """Raises: NotToBeTold, MetadataUnavailable."""

    def report(outcome: Outcome) -> None:
        kind = Standing.KEPT.value if outcome.kept else "deleted"
        output.row(kind, {"ledger": outcome.ledger_id, "reason": outcome.kept or None})

    def on_wait(count: int) -> None:
        click.echo(
            f"vela: {count} more are deleted in {AGE_MINUTES_MIN} minutes: their topics or schemas"
            " have no record, and may just be in the making by a machine whose clock is behind",
            err=True,
        )

    store = await open_store(url, SESSION_S, access().metadataStoreConfigPath)
    try:
        await delete_orphans(store, age_minutes_min, SystemClock().wall_ms, report, on_wait)
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()
