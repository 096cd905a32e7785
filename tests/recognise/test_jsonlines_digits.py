"""Digits that are no decimals do not break the reading of journals."""

from __future__ import annotations

import json

from gpuclinic.recognise.jsonlines import unwrap


def test_a_stamp_with_a_superscript_is_no_stamp() -> None:
    row = {
        "MESSAGE": "NVRM: Xid (PCI:0000:9a:00): 79",
        "__REALTIME_TIMESTAMP": "177242466¹000000",
        "_HOSTNAME": "n1",
        "_TRANSPORT": "kernel",
    }
    assert "Xid" in (unwrap(json.dumps(row, ensure_ascii=False) + "\n") or "")
