"""Who can come in and what runs by itself: crontab, authorized_keys, sshd_config, ld.so.preload, Jupyter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import MAX_FACTS, clipped_lines, command_of, fact

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_CRON = re.compile(
    r"^\s*(?P<when>@(?:reboot|hourly|daily|weekly|monthly|yearly|annually|midnight)|(?:[\d*/,A-Za-z-]+\s+"
    r"){4}[\d*/,A-Za-z-]+)\s+(?P<command>\S.*)$"
)
_CRON_FIELD = re.compile(
    r"^(?:\*|\d+(?:-\d+)?|[A-Za-z]{3}(?:-[A-Za-z]{3})?)(?:/\d+)?(?:,(?:\*|\d+(?:-\d+)?)(?:/\d+)?)*$"
)
_ATTACKERS = re.compile(r"mdrfckr|^crackit\b|^redis@redis\.io$|@kali$")
"""Comments of keys that public reports name: the mdrfckr worm, keys written through an open Redis, attack distributions."""
_KEY = re.compile(
    r"^(?P<options>.*?\s)?(?P<type>(?:sk-)?(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-nistp\d+)(?:@openssh\.com)?|"
    r"(?:sk-)?ssh-ed25519@openssh\.com)\s+(?P<body>AAAA[\w+/.=…*-]*)(?:\s+(?P<comment>.*))?$"
)
_FETCH_RUN = re.compile(
    r"(?:curl|wget|lwp-download|fetch)\b[^|;&\n]{0,300}(?:\||;|&&)\s*(?:sudo\s+(?:-\S+\s+)*)?(?:\S*/)?(?:ba|da|z|"
    r"k)?sh\b|(?:ba|da|z)?sh\s+-c\s+[\"']?[$`(]*\(?(?:curl|wget)|"
    r"<\(\s*(?:curl|wget)|eval\s+[\"']?[$`]\(?\s*(?:curl|wget|base64|echo)|base64\s+(?:-d|--decode|-D)\b[^|"
    r"\n]{0,200}\|\s*(?:\S*/)?(?:ba|da|z)?sh\b|/dev/(?:tcp|udp)/|"
    r"python[\d.]*\s+-c\s+.{0,200}(?:urlopen|socket|exec\(|b64decode)|perl\s+-e\s+.{0,200}socket|\bnc(?:at)?\s+"
    r".{0,80}-e\b|"
    r"(?:curl|wget)\b[^\n]{0,300}\s-[oO]\s*(?P<to>\S+)[^\n]{0,200}(?:chmod\s+\S+\s+|sh\s+)(?P=to)",
)
_HIDDEN = re.compile(
    r"(?:/tmp|/var/tmp|/dev/shm|/run/shm)/(?:\.\S+|\S*/\.\S+)|/\.(?!ssh\b|local\b|config\b|cache\b|conda|venv|nvm|"
    r"cargo|bashrc|profile|acme\.sh|pyenv|bin\b)[\w.-]{1,40}/\S+|/(?:tmp|var/tmp|dev/shm)/\S+"
)
_LOOPBACK = re.compile(r"https?://(?:localhost|127\.|169\.254\.169\.254|\[::1\])")


def suspicion(command: str) -> str | None:
    """Why a command that runs by itself looks like a backdoor: it runs fetched code, or a file in a temporary place."""
    if _FETCH_RUN.search(command) and not _LOOPBACK.search(command):
        return "fetches code and runs it"
    first = re.sub(
        r"^(?:\w+=\S+\s+|nohup\s+|/bin/|/usr/bin/|sudo\s+|sh\s+|bash\s+|nice\s+(?:-n?\s*\d+\s+)?)+", "", command
    )
    if re.match(r"(?:/tmp|/var/tmp|/dev/shm|/run/shm)/\S+", first) or re.match(
        r"(?:/tmp|/var/tmp|/dev/shm)/\.", command
    ):
        return "runs a file in a temporary folder"
    if _HIDDEN.match(first):
        return "runs a hidden file"
    return None


def parse_cron(document: Document) -> list[Fact]:
    """crontab -l, /etc/crontab, cron.d: "cron" with when, user, command, suspicious."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        text = line.strip()
        if not text or text.startswith("#") or len(text) > 4000 or command_of(line):
            continue
        match = _CRON.match(text)
        if not match:
            continue
        if not match["when"].startswith("@") and not all(_CRON_FIELD.match(part) for part in match["when"].split()):
            continue
        command, user = match["command"], None
        named = re.match(
            r"^(?P<user>root|[a-z_][a-z0-9_-]{0,30})\s+(?P<rest>(?:/|\[|\(|test\b|cd\b|[a-z]+\s|\S+/|command\b|if\b)"
            r".*)$",
            command,
        )
        if named and re.match(r"^(?:root|www-data|nobody|[a-z]\w*)$", named["user"]) and named["user"] not in _COMMANDS:
            user, command = named["user"], named["rest"]
        why = suspicion(command)
        fields: dict[str, Scalar] = {
            "when": match["when"],
            "user": user,
            "command": command[:1000],
            "suspicious": why is not None,
            "why": why,
            "bare_address": bool(re.search(r"https?://\d+\.\d+\.\d+\.\d+", command)),
            "kills": bool(re.search(r"\b(?:pkill|killall|kill)\b", command)),
            "reboots": bool(re.search(r"\b(?:reboot|shutdown|init 6)\b", command)),
        }
        facts.append(fact(document, "cron", command[:80], fields, index, line))
    return facts[:MAX_FACTS]


_COMMANDS = frozenset(
    [
        "bash",
        "sh",
        "curl",
        "wget",
        "python",
        "python3",
        "perl",
        "nohup",
        "cd",
        "test",
        "find",
        "rsync",
        "sleep",
        "echo",
        "cat",
        "kill",
        "killall",
        "pkill",
        "systemctl",
        "docker",
        "nvidia",
        "env",
        "flock",
        "nice",
        "ionice",
        "tar",
        "cp",
        "mv",
        "rm",
        "sudo",
        "logrotate",
        "certbot",
        "ntpdate",
        "mail",
        "date",
        "touch",
        "chmod",
        "chown",
        "mysqldump",
        "pg_dump",
        "git",
        "make",
        "run",
        "command",
        "if",
        "for",
        "while",
        "timeout",
    ]
)


def parse_authorized_keys(document: Document) -> list[Fact]:
    """authorized_keys: "ssh_key" with type, comment, options, command; the key itself is not kept."""
    facts: list[Fact] = []
    account = re.search(r"(?:/home/|home/)([\w.-]+)/\.ssh|(?:^|/)(root)/\.ssh", document.source)
    for index, line in enumerate(clipped_lines(document)):
        match = _KEY.match(line.strip()) if len(line) < 8000 else None
        if not match:
            continue
        options = (match["options"] or "").strip()
        forced = re.search(r'command="((?:[^"\\]|\\.)*)"', options)
        command = forced.group(1) if forced else None
        why = None
        if command and not re.search(r"Please login as the user", command):
            why = suspicion(command) or (
                "decodes or evaluates text" if re.search(r"base64|eval|xxd|/dev/tcp", command) else None
            )
        if re.search(r"environment=\"(?:LD_PRELOAD|LD_LIBRARY_PATH)", options):
            why = "sets LD_PRELOAD"
        shown = f"{options} {match['type']} … {match['comment'] or ''}".strip()
        fields: dict[str, Scalar] = {
            "type": match["type"],
            "comment": match["comment"],
            "options": options[:500] or None,
            "command": command,
            "suspicious": why is not None,
            "why": why,
            "account": (account.group(1) or account.group(2)) if account else None,
            "old_type": match["type"] == "ssh-dss",
            "known_worm": bool(_ATTACKERS.search(match["comment"] or "")),
        }
        facts.append(fact(document, "ssh_key", match["comment"] or match["type"], fields, index, shown))
    return facts[:MAX_FACTS]


_SSHD = re.compile(
    r"^\s*(?P<name>PermitRootLogin|PasswordAuthentication|PermitEmptyPasswords|X11Forwarding|Port|ListenAddress|"
    r"PubkeyAuthentication|MaxAuthTries|"
    r"PermitUserEnvironment|AuthorizedKeysFile|AuthorizedKeysCommand|KbdInteractiveAuthentication|"
    r"ChallengeResponseAuthentication|AllowUsers|MaxStartups|"
    r"AllowTcpForwarding|UsePAM|MaxSessions|LoginGraceTime)\s+(?P<value>\S.*?)\s*$",
    re.IGNORECASE,
)


def parse_sshd(document: Document) -> list[Fact]:
    """sshd_config and sshd -T: "sshd" (first value wins, Match blocks end the global part)."""
    facts: list[Fact] = []
    seen: set[str] = set()
    for index, line in enumerate(clipped_lines(document)):
        if re.match(r"^\s*Match\s", line, re.IGNORECASE):
            break
        match = _SSHD.match(line[:500])
        if match and match["name"].lower() not in seen:
            seen.add(match["name"].lower())
            fields: dict[str, Scalar] = {"name": match["name"].lower(), "value": match["value"].lower()}
            facts.append(fact(document, "sshd", match["name"].lower(), fields, index, line))
    return facts


_JUPYTER = re.compile(
    r"^\s*(?:c\.)?(?P<app>NotebookApp|ServerApp|IdentityProvider|PasswordIdentityProvider|LabApp|JupyterHub)"
    r"\.(?P<name>ip|token|password|allow_root|allow_origin|"
    r"disable_check_xsrf|certfile|port|open_browser|password_required|hashed_password|allow_remote_access)\s*=\s*"
    r"u?(?P<value>.*?)\s*(?:#.*)?$"
)
_JUPYTER_ARGS = re.compile(
    r"--(?:NotebookApp|ServerApp|IdentityProvider|PasswordIdentityProvider)\.(?P<name>\w+)[= ](?P<value>''|\"\"|\S*)|"
    r"--(?P<flag>allow-root|ip|port)(?:[= ](?P<value2>\S+))?"
)


def parse_jupyter(document: Document) -> list[Fact]:
    """Jupyter's configuration and the options on its command line: "jupyter" with name and value."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        if line.lstrip().startswith("#") or len(line) > 4000:
            continue
        match = _JUPYTER.match(line)
        if match:
            value = match["value"].strip("'\" ")
            secret = match["name"] in ("token", "password", "hashed_password") and value
            fields: dict[str, Scalar] = {
                "name": match["name"],
                "value": "***" if secret else value,
                "empty": value in ("", "None"),
            }
            facts.append(
                fact(document, "jupyter", match["name"], fields, index, f"{match['name']} = ***" if secret else line)
            )
            continue
        if not re.search(r"\bjupyter(?:-lab|-notebook|\s|hub)", line):
            continue
        for option in _JUPYTER_ARGS.finditer(line):
            name = option["name"] or option["flag"].replace("-", "_")
            value = (option["value"] or option["value2"] or "").strip("'\"")
            secret = name in ("token", "password") and value
            fields = {
                "name": name,
                "value": "***" if secret else (value or ("true" if option["flag"] else "")),
                "empty": value == "" and not option["flag"],
            }
            facts.append(fact(document, "jupyter", name, fields, index, "***" if secret else line))
    return facts[:200]


_PRELOAD = re.compile(r"^\s*(?P<path>/\S+\.so(?:\.\d+)*)\s*$")


def parse_preload(document: Document) -> list[Fact]:
    """ld.so.preload: "preload" for each library named in it."""
    facts: list[Fact] = []
    asked = "ld.so.preload" in f"{document.source} {document.name_hint}"
    for index, line in enumerate(clipped_lines(document)):
        command = command_of(line)
        if command or re.search(r"^(?:==>|-+|#)?.*ld\.so\.preload", line):
            asked = "ld.so.preload" in line
            continue
        match = _PRELOAD.match(line[:500]) if asked else None
        if match:
            fields: dict[str, Scalar] = {
                "path": match["path"],
                "known": bool(
                    re.search(r"libjemalloc|libtcmalloc|libfakeroot|libnss|libsnoopy|libprocesshider$", match["path"])
                )
                and "hider" not in match["path"],
            }
            facts.append(fact(document, "preload", match["path"], fields, index, line))
    return facts[:50]
