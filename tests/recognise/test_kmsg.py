from __future__ import annotations

from gpuclinic.recognise.kmsg import readable


def test_records_read_as_dmesg_prints_them() -> None:
    data = b"6,1,0,-;Linux version 6.8\n4,345,863400000123,-,caller=T1;NVRM: Xid (PCI:0000:34:00): 79\n SUBSYSTEM=pci\nno record\n"
    assert (
        readable(data)
        == b"[    0.000000] Linux version 6.8\n[863400.000123] NVRM: Xid (PCI:0000:34:00): 79\n SUBSYSTEM=pci\nno record\n"
    )


def test_lines_with_their_level_read_as_without() -> None:
    data = b"<6>[    0.000000] Linux version 6.8\n<4>[863400.000123] NVRM: Xid\n<7>no stamp\n"
    assert readable(data) == b"[    0.000000] Linux version 6.8\n[863400.000123] NVRM: Xid\n<7>no stamp\n"


def test_what_is_no_record_stays() -> None:
    assert readable(b"1,2;3\n\xff,\n") == b"1,2;3\n\xff,\n"
