"""``queue-db claims``: consumers claim messages of a feed, and delete those that are done."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from queue_db.cli import output, panels
from queue_db.cli.commands import command
from queue_db.cli.feeds import FeedArgument, existing, message_record, print_messages
from queue_db.cli.options import CommonOptions
from queue_db.errors import ArgumentError
from queue_db.feeds import MessageClaim

ClaimArgument = Annotated[str, typer.Argument(metavar="CLAIM", help="Id of the claim, as claim and list print it.")]
MessagesOption = Annotated[int, typer.Option("--limit", "-n", metavar="N", help="At most N messages, up to 1000.")]
GraceOption = Annotated[
    float, typer.Option("--grace", metavar="SECONDS", help="No message expires earlier than SECONDS after the end of the claim.")
]

app = typer.Typer(
    name="claims",
    help="Use a feed as a queue: claim messages, and delete those that are done. For feeds made by feeds set --claims.",
    no_args_is_help=True,
    rich_help_panel=panels.QUEUES,
)


@command(
    app,
    "claim",
    "queue-db claims claim mail --limit 10 --lease 60",
    "queue-db claims claim mail --json | jq -r '.claim // empty'",
)
def claim(
    feed: FeedArgument,
    *,
    limit: MessagesOption = 10,
    lease: Annotated[
        float, typer.Option("--lease", metavar="SECONDS", help="After SECONDS other consumers can claim what is left.")
    ] = 300.0,
    grace: GraceOption = 60.0,
    common: CommonOptions,
) -> None:
    """Claim the first messages that are free: no other consumer gets them until the claim ends. Print its id and the messages.

    Do the work, then "claims delete". If it takes longer: "claims extend". If it cannot be done: "claims release". What is not
    deleted when the claim ends can be claimed again: each message is processed at least once.

    The exit status is 1 if no message is free.
    """
    with common.open() as db:
        claimed = existing(db, feed).claim(limit, lease=lease, grace=grace)
        if claimed is not None:
            _print(claimed, common)
        else:
            _nothing(feed, common, {"feed": feed, "claim": None, "messages": []})


@command(app, "list", "queue-db claims list mail", "queue-db claims list mail --json | jq -r .id")
def list_claims(feed: FeedArgument, *, common: CommonOptions) -> None:
    """List the claims that have not ended, with how many messages are left of each. Those that end first come first."""
    with common.open() as db:
        found = existing(db, feed).claims()
    if common.as_json:
        for one in found:
            output.record(asdict(one) | {"expires_at": one.expires_at.isoformat()})
        return
    output.table(("claim", "messages", "until"), [(one.id, one.messages, output.moment(one.expires_at)) for one in found])


@command(app, "show", "queue-db claims show mail $CLAIM", "queue-db claims show mail $CLAIM --json | jq '.messages[].payload'")
def show(feed: FeedArgument, claim_id: ClaimArgument, *, common: CommonOptions) -> None:
    """Print the messages that are left of a claim. The exit status is 1 if it has ended or does not exist."""
    with common.open() as db:
        _print(existing(db, feed).find_claim(claim_id), common)


@command(app, "extend", "queue-db claims extend mail $CLAIM 300")
def extend(
    feed: FeedArgument,
    claim_id: ClaimArgument,
    seconds: Annotated[float, typer.Argument(metavar="SECONDS", help="The claim ends SECONDS from now.")],
    *,
    grace: GraceOption = 60.0,
    common: CommonOptions,
) -> None:
    """Let a claim end later, or earlier. The exit status is 1 if it has ended: other consumers may have its messages."""
    with common.open() as db:
        found = existing(db, feed).find_claim(claim_id)
        found.extend(seconds, grace=grace)
        ends = output.moment(found.expires_at)
    common.print({"feed": feed, "claim": claim_id, "expires_at": ends}, f"{feed} {claim_id}: until {ends}")


@command(app, "release", "queue-db claims release mail $CLAIM")
def release(feed: FeedArgument, claim_id: ClaimArgument, *, common: CommonOptions) -> None:
    """End a claim: other consumers can claim its messages at once. The claim does not count towards --max-attempts of the feed."""
    with common.open() as db:
        count = existing(db, feed).find_claim(claim_id).release()
    common.print({"feed": feed, "claim": claim_id, "released": count}, f"{feed} {claim_id}: {count:,} messages released")


@command(
    app,
    "delete",
    "queue-db claims delete mail --claim $CLAIM",
    "queue-db claims delete mail 1f0c9a2e.1.184 --claim $CLAIM",
    "queue-db claims delete mail 1f0c9a2e.1.184 1f0c9a2e.1.185",
)
def delete(
    feed: FeedArgument,
    positions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[POSITION]...", help="Positions of the messages, as they were printed.", show_default=False),
    ] = None,
    *,
    claim_id: Annotated[
        str | None, typer.Option("--claim", metavar="CLAIM", help="Id of the claim that has them.", show_default=False)
    ] = None,
    common: CommonOptions,
) -> None:
    """Delete messages that are done, all or none. With --claim and without positions: all that are left of the claim.

    Without --claim only messages are deleted that no consumer has claimed. The exit status is 1 if the claim has ended, or does not
    have one of the messages: then nothing is deleted, and another consumer may process it.
    """
    if not positions and claim_id is None:
        raise ArgumentError("no messages chosen: give their positions, or --claim for all messages of a claim, or both")
    with common.open() as db:
        opened = existing(db, feed)
        count = opened.delete(positions, claim=claim_id) if positions else opened.find_claim(claim_id or "").delete()
    common.print({"feed": feed, "deleted": count}, f"{feed}: {count:,} messages deleted")


@command(app, "pop", "queue-db claims pop mail", "queue-db claims pop mail --limit 10 --json | jq .payload")
def pop(feed: FeedArgument, *, limit: MessagesOption = 1, common: CommonOptions) -> None:
    """Delete the first messages that are free, and print them. If this program ends before it has printed them, they are lost.

    The exit status is 1 if no message is free.
    """
    with common.open() as db:
        popped = existing(db, feed).pop(limit)
        print_messages(popped, common)
    if not popped:
        _nothing(feed, common, None)


@command(app, "stats", "queue-db claims stats mail", "queue-db claims stats mail --json | jq .free")
def stats(feed: FeedArgument, *, common: CommonOptions) -> None:
    """Count the messages of a feed: free, claimed, and delayed, and show the oldest and the newest of them."""
    with common.open() as db:
        found = existing(db, feed).stats()
        ends = {
            name: None if one is None else message_record(one) for name, one in (("oldest", found.oldest), ("newest", found.newest))
        }
    counts = {"total": found.total, "free": found.free, "claimed": found.claimed, "delayed": found.delayed}
    if common.as_json:
        output.record({"feed": feed, **counts, **ends})
        return
    shown = {
        name: None if one is None else f"{one['position']}  {one['published_at']}  {one['kind']}" for name, one in ends.items()
    }
    output.sheet({**counts, **shown})


def _print(claimed: MessageClaim, common: CommonOptions) -> None:
    if common.as_json:
        messages = [
            message_record(one) | {"attempts": attempts} for one, attempts in zip(claimed.messages, claimed.attempts, strict=True)
        ]
        ends = output.moment(claimed.expires_at)
        output.record({"feed": claimed.feed.name, "claim": claimed.id, "expires_at": ends, "messages": messages})
        return
    output.line(f"claim {claimed.id} until {output.moment(claimed.expires_at)}")
    print_messages(claimed.messages, common, claimed.attempts)


def _nothing(feed: str, common: CommonOptions, record: dict[str, object] | None) -> None:
    """Report that no message is free, with its exit status."""
    if common.as_json and record is not None:
        output.record(record)
    output.note(f"{feed}: no message is free")
    output.found(False)
