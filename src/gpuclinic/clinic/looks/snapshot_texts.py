"""All that a snapshot made by hand holds beside what the other looks asked for by name: outputs of commands, logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted
from gpuclinic.observe.recording import RecordingHost
from gpuclinic.observe.replay import Replay
from gpuclinic.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked


def look_at_texts(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """Texts for the recogniser; nothing on a running server, where every answer was asked for."""
    seen = Seen()
    if isinstance(host, (Snapshot, RecordingHost, Replay)):
        for name, answer in host.texts():
            seen.text(name, answer, "snapshot.texts")
    return seen
