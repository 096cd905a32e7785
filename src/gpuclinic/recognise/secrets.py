"""Passwords, tokens, keys and the like in texts: found by their shape or by the name before them, and hidden."""

from __future__ import annotations

import re

HIDDEN = "***"

_NAMED = (
    r"(?:pass(?:word|wd|phrase)?|pwd(?=[\"']?\s{0,3}[=:]\s{0,3}[\"']?[^/~\s\"'])|secret|credentials?|"
    r"(?:api|access|auth|private|secret|account|master|signing|encryption|ssh|license|app)[-_ ]?key|"
    r"(?:api|access|auth|bearer|refresh|session|security|secret|hf|hub|hugging_?face|hugging_?face_?hub|wandb|github|gitlab|"
    r"gh|slack|bot|jupyter|vault|k8s|kube|registry|npm|pypi|join|id)[-_]token)"
)
_QUOTED = r"(?:\"[^\"\n]{1,400}\"|'[^'\n]{1,400}'|[^\s\"',;&|)}\]]{3,400})"
_SHORT_PREFIXES = (
    r"hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-(?:ant-|proj-|or-)?[\w-]{20,}|"
    r"nvapi-[\w-]{20,}|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|"
    r"dckr_pat_[\w-]{16,}|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}|LTAI[A-Za-z0-9]{12,}|AKID[A-Za-z0-9]{20,}|dop_v1_[a-f0-9]{40,}|"
    r"wandb_v1_[A-Za-z0-9_]{16,}|r8_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{30,}|ms-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)

_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (
        ("private key",),
        re.compile(
            r"(-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----).*?(?:(-----END [A-Z0-9 ]{0,30}PRIVATE KEY-----)|\Z)",
            re.DOTALL,
        ),
        rf"\1{HIDDEN}\2",
    ),
    (("eyj",), re.compile(r"\beyJ[\w-]{8,2000}\.[\w-]{8,4000}(?:\.[\w-]{0,2000})?"), HIDDEN),
    (
        (
            "hf_",
            "ghp_",
            "gho_",
            "ghu_",
            "ghs_",
            "ghr_",
            "github_pat_",
            "glpat-",
            "sk-",
            "nvapi-",
            "xox",
            "aiza",
            "ya29",
            "npm_",
            "pypi-",
            "dckr_pat_",
            "akia",
            "asia",
            "aroa",
            "aida",
            "ltai",
            "akid",
            "dop_v1_",
            "wandb_v1_",
            "r8_",
            "gsk_",
            "ms-",
        ),
        re.compile(rf"\b(?:{_SHORT_PREFIXES})"),
        HIDDEN,
    ),
    (
        ("://",),
        re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{0,100}):[^\s/@\"']{1,200}@", re.IGNORECASE),
        rf"\1:{HIDDEN}@",
    ),
    (("://",), re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)[\w.~+%-]{16,200}@", re.IGNORECASE), rf"\1{HIDDEN}@"),
    (
        ("authorization", "x-api-key", "x-auth-token"),
        re.compile(
            r"((?:authorization|proxy-authorization|x-api-key|x-auth-token)[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?:(bearer|basic|token|digest)\s+)?[^\s\"',]{4,2000}",
            re.IGNORECASE,
        ),
        rf"\1\2 {HIDDEN}",
    ),
    (
        ("bearer",),
        re.compile(r"\b(bearer\s+)(?=[\w.~+/-]{0,400}\d)[\w.~+/-]{16,4000}=*", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
    (
        ("?", "&"),
        re.compile(
            r"([?&](?:[\w-]{0,30}(?:token|sig|signature|secret|password|key|credential|code))=)[^&\s\"'#]{4,1000}",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (("http",), re.compile(r"(https?://[^\s\"']{1,150}/(?:hooks?|services|webhook)/)[\w/-]{16,200}"), rf"\1{HIDDEN}"),
    # NAME=value, "name": "value", --name value
    (
        ("pass", "pwd", "secret", "credential", "key", "token"),
        re.compile(
            rf"((?<![a-z])(?:[a-z0-9]{{1,30}}[-_.]){{0,4}}{_NAMED}(?:[-_][a-z0-9]{{1,20}})?[\"']?\s{{0,3}}(?:=|:|=>)\s{{0,3}})(?!\s|=|\*\*\*){_QUOTED}",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (
        ("--",),
        re.compile(rf"(--(?:[a-z0-9]{{1,30}}[-_]){{0,4}}(?:{_NAMED}|token)\s{{1,3}})(?!-){_QUOTED}", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
    (("_token",), re.compile(r"(\b[A-Z][A-Z0-9_]{0,40}_TOKEN\s?=\s?)[\"']?[^\s\"',;]{6,400}"), rf"\1{HIDDEN}"),
    (
        ("token",),
        re.compile(
            r"((?<![\w-])token[\"']?\s{0,2}[=:]\s{0,2}[\"']?)(?=[^\s\"',;&]{0,400}\d)(?=[^\s\"',;&]{0,400}[a-zA-Z])[\w.~+/-]{16,400}=*",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (
        ("login", "sshpass"),
        re.compile(
            r"(\b(?:wandb\s+login|huggingface-cli\s+login\s+--token|sshpass\s+-p)(?:\s+--relogin)?\s+)\S{4,200}"
        ),
        rf"\1{HIDDEN}",
    ),
    # what sets a password without the word before it: PGPASSWORD=, MYSQL_PWD=, mysql -pSECRET, a miner's -p, cookies, 密码：
    (
        ("passw", "pwd"),
        re.compile(r"(\b(?:[A-Z]{2,12}(?:PASSWORD|PASSWD)|MYSQL_PWD)=)[\"']?[^\s\"']{3,400}"),
        rf"\1{HIDDEN}",
    ),
    (
        ("mysql", "maria"),
        re.compile(r"(\b(?:mysql|mysqldump|mariadb|mysqladmin)\b[^\n]{0,200}?\s-p)[^\s-]\S{2,200}"),
        rf"\1{HIDDEN}",
    ),
    (
        ("miner", "xmrig", "t-rex"),
        re.compile(
            r"(\b(?:xmrig|t-rex|lolMiner|nbminer|gminer|ethminer|phoenixminer|cpuminer|miner\w{0,20})\b[^\n]{0,300}?\s(?:-p|--pass)\s+)\S{4,200}",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (("cookie",), re.compile(r"(\b(?:set-)?cookie\s?:\s?)[^\n]{4,2000}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (("sig=",), re.compile(r"([?&;]sig=)[^&\s\"'#]{4,1000}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (
        ("密码", "口令", "密钥", "令牌", "密碼", "パスワード"),
        re.compile(r"((?:密码|口令|密钥|令牌|密碼|パスワード)\s?[：:=]\s?)[^\s，。；,;]{3,400}"),
        rf"\1{HIDDEN}",
    ),
    (("curl",), re.compile(r"(\bcurl\b[^\n]{0,300}?\s(?:-u|--user)\s+[^\s:]{1,100}:)\S{1,200}"), rf"\1{HIDDEN}"),
)
"""Words of which one stands, in small letters, in every text that the pattern matches; the pattern; what replaces it."""
_WORTH_A_LOOK = re.compile(
    r"pass|pwd|secret|token|key|credential|://|bearer|authoriz|eyJ|[a-z0-9]{2,9}[_-][A-Za-z0-9]{8}|AKI|ASIA|LTAI|AIza|AROA|AIDA|/hook|login|curl|sshpass|ya29|mysql|maria|miner|xmrig|t-rex|cookie|sig=|密|口令|令牌|パスワード",
    re.IGNORECASE,
)


def mask(text: str) -> str:
    """The text with passwords, tokens, keys and the like replaced by three stars."""
    if not _WORTH_A_LOOK.search(text):
        return text
    low = text.lower()
    for words, pattern, replacement in _RULES:
        if any(word in low for word in words):
            text = pattern.sub(replacement, text)
    return text
