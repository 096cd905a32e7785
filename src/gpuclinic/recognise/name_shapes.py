"""How names of people, hosts and things stand in texts: what a capture that is to be anonymous looks for (recognise/anonymising.py)."""

from __future__ import annotations

import re

NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"

LIKE_A_DEVICE = re.compile(r"(?i)(?:gpu|nic|cpu|node|rank|numa|eth|ib|nvme|cuda)(\d{1,3})")
"""Hosts called as tools call devices: gpu3 stands only where a host stands, gpu03 is not GPU03."""
FQDN = rf"({NAME}(?:\.[\w.-]{{1,120}})?)"
STAMP = r"(?:[A-Z][a-z]{2} +\d{1,2} [\d:.]{8,15}|20\d\d-\d\d-\d\d[T ][\d:.,+-]{8,21}Z?)"
HOSTS: tuple[re.Pattern[str], ...] = (
    re.compile(rf"(?m)^(?:<\d+>)?{STAMP} {FQDN} [\w./@()-]{{1,60}}(?:\[\d+\])?:"),
    re.compile(rf"(?m)^Linux {FQDN} \d+\.\d+"),
    re.compile(rf"(?<![\w./-]){FQDN}:\d{{1,8}}:\d{{1,8}} \[-?\d{{1,3}}\]"),
    re.compile(rf"(?m)^{FQDN}:/(?!/)\S* "),
    re.compile(
        rf"\b(?:NodeName|NodeHostName|NodeAddr|BatchHost|HOSTNAME|SLURMD_NODENAME|MASTER_ADDR|SlurmctldHost|SlurmctldAddr|ControlMachine|BackupController|"
        rf"AccountingStorage(?:Backup)?Host|Dbd(?:Backup)?Host|StorageHost|JobCompHost)=\"?{FQDN}(?![\w.\[-])"
    ),
    re.compile(rf"(?m)^//{FQDN}/\S"),
    re.compile(rf"\bReference ID\s{{0,10}}: [0-9A-F]{{8}} \({FQDN}\)"),
    re.compile(rf"\"(?:host|hostname|nodeName|Hostname)\": ?\"{FQDN}\""),
)  # fmt: skip
HOST_LISTS = re.compile(
    r"\b(?:NodeName|NodeHostName|NodeAddr|Nodes|NodeList|\w{0,20}(?:NODELIST|nodelist|Nodelist))[=:]\s?\"?([^\s\"|]{3,8000})"
)
HOST_LIST = re.compile(r"(?<![\w./-])[A-Za-z][\w-]{0,62}\[\d[\d,-]{0,800}\](?:[\w.-]{0,60}\w)?")
MOST_LISTED = 4096
USERS: tuple[re.Pattern[str], ...] = (
    re.compile(r"/(?:home|Users)/([a-z_][\w.-]{1,31})(?=[/\s\"':,;)\]]|$)"),
    re.compile(r"(?m)^([a-z_][\w.-]{1,31}):[^:\n]*:[1-5]\d{3,4}:\d+:"),
    re.compile(r"\b(?:USER|LOGNAME|SLURM_JOB_USER|SUDO_USER|UserId|User|user|username|owner)=\"?([a-z_][\w.-]{1,31})\b"),
    re.compile(r"\b(?:session (?:opened|closed) for user|Accepted \w+ for|(?:invalid|failed|new) user:?) ([a-z_][\w.-]{1,31})\b"),
    re.compile(r"\bFailed password for(?: invalid user)? ([a-z_][\w.-]{1,31})\b"),
    re.compile(r"\bsudo(?:\[\d+\])?: +([a-z_][\w.-]{1,31}) : "),
    re.compile(r"\b[ug]id=\d{4,6}\(([a-z_][\w.-]{1,31})\)"),
)  # fmt: skip
URL = re.compile(
    r"(?i)\b(?:https?|ftps?|ssh|git|rediss?|postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|amqps?|ldaps?|tcp|udp|tls|grpcs?|nfs|smb|cifs|kafka|"
    r"clickhouse|wss?|socks[45]h?|rsync|mqtts?|nats|etcd)://(?:([a-z_][\w.-]{0,31})?(?::[^\s\"'<>]{0,400}?)?@)?"
    rf"({NAME}(?:\.[\w-]{{1,63}}){{0,8}})(?=[:/?#,;|\s\"'<>)\]}}\\]|\Z)"
)
URL_WORD = re.compile(r"[\d_-]")
PODS: tuple[re.Pattern[str], ...] = (
    re.compile(r"\"io\.kubernetes\.(?:pod\.name|pod\.namespace|container\.name)\": ?\"([a-z0-9][\w.-]{2,120})\""),
    re.compile(r"\bpods?[=/]\"?(?:[a-z0-9][a-z0-9-]{0,62}/)?([a-z0-9][a-z0-9-]{2,120})\b"),
    re.compile(r"\"Names?\": ?\"/?([A-Za-z0-9][\w.-]{2,120})\""),
)
SERIALS: tuple[re.Pattern[str], ...] = (
    re.compile(
        r"(?i)\b(?:board[ _])?(?:serial|asset|service)(?:[ _-]?(?:number|num|no|tag))?[\"']?\s{0,20}[:=>]\s{0,3}[\"']?"
        r"([A-Za-z0-9][\w-]{5,40})(?![\w/-])"
    ),
    re.compile(r"\bSN[:=]\s?([A-Za-z0-9]{6,30})\b"),
)  # fmt: skip
GUID = re.compile(
    r"(?i)(?:\w{0,20}gu?id|\bww(?:i?d|[np]|nn|pn)|\beui(?:-?64)?|\bnaa)\b[^\n0-9a-f]{1,12}(?:0x)?"
    r"([0-9a-f]{4}(?::[0-9a-f]{4}){3}|[0-9a-f]{32}|[0-9a-f]{16})(?![0-9a-z])"
)
"""Identifiers of ports, disks and name spaces (InfiniBand GUID, EUI-64, NGUID, WWN, NAA): hexadecimal, told by the word before them."""
SEARCHED = re.compile(r"(?m)^(?:search|domain)\s+(.{1,400})$")
USER_COLUMN = re.compile(r"(?m)^(?:USER|UID) +PID .*\n((?:.*\n?)*)")

BEFORE_HOST = (
    rf"{STAMP} (?=[^ \n]{{1,64}}[ \n])", r"^Linux ", r"://(?:[^\s/@\"'<>]{0,200}@)?", r"(?<=[\w*.-])@(?=[^\s/]{1,64}[\s:/,;)\"'\]]|[^\s/]{1,64}$)",
    r"\b(?:HOSTNAME|NodeName|NodeHostName|NodeAddr|BatchHost|SLURMD_NODENAME|MASTER_ADDR|SlurmctldHost|ControlMachine)=\"?",
    r"\b(?:hostname|Hostname|Static hostname)[=:]\s?[\"']?",
    r"\"(?:host|hostname|nodeName|Hostname|_HOSTNAME)\": ?\"", r"\bHostname set to <",
)  # fmt: skip
AFTER_HOST = (r":\d{1,8}:\d{1,8} \[", r"\.site\d{5}\.example\b", r"\.(?:localdomain|local|internal)\b", r":/(?!/)\S")
"""What stands before and behind a host's name: a time stamp, a URL, a setting; NCCL's pid, a domain, a mounted folder."""
HOSTS_LINE = re.compile(
    r"(?m)^([ \t]*(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]{2,39}(?:%\w{1,16})?)[ \t]+)([\w.-][^\n#=\"]{0,2000})"
)
MOST_PLACES = 500

SHAPES = re.compile(
    r"(?P<mail>(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,6})"
    r"|(?P<uuid>(?<![0-9A-Za-z])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9A-Za-z]))"
    r"|(?P<hex>(?<![0-9A-Za-z])(?:[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{12})(?![0-9A-Za-z]))"
    r"|(?P<mac>(?<![0-9A-Za-z:])(?:[0-9a-fA-F]{2}:){5}(?:(?:[0-9a-fA-F]{2}:){14}|(?:[0-9a-fA-F]{2}:){2})?[0-9a-fA-F]{2}(?![0-9A-Za-z:]))"
    r"|(?P<guid>(?<![0-9A-Za-z:])(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}(?![0-9A-Za-z:]))"
    r"|(?P<wwn>(?<=WWN Device Id: )[0-9a-fA-F] [0-9a-fA-F]{6} [0-9a-fA-F]{9}\b)"
    r"|(?P<pairs>(?m:^)(?:[0-9a-f]{2} ){7}[0-9a-f]{2}(?m:$))"
    r"|(?P<v6>(?<![0-9A-Za-z:.])(?:[0-9A-Fa-f]{1,4}:){1,7}:?(?:[0-9A-Fa-f]{1,4}:?){1,7}(?<!:)(?![0-9A-Za-z:.]))"
    r"|(?P<v4>(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d))"
    r"|(?P<home>/(?:home|Users)/[a-z_][\w.-]{1,31}(?:/[^\s\"'`:,;<>()\[\]{}|&\\]{0,400})?)"
)
TOKEN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*[A-Za-z0-9_]|[A-Za-z0-9_]")
ESCAPED = re.compile(r"(\\(?:[nrtbf]|u[0-9a-f]{4}))")
SPLIT = re.compile(r"([._-]+)")
