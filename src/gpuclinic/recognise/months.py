"""Month names as the C library's locales write them: syslog, `date`, `dmesg -T` and journalctl follow LC_TIME."""

from __future__ import annotations

_NAMES = {
    "en": "jan feb mar apr may jun jul aug sep oct nov dec",
    "en long": "january february march april may june july august september october november december",
    "de": "jan feb mär apr mai jun jul aug sep okt nov dez",
    "de long": "januar februar märz april mai juni juli august september oktober november dezember",
    "at": "jän feb mär apr mai jun jul aug sep okt nov dez",
    "fr": "janv févr mars avril mai juin juil août sept oct nov déc",
    "fr old": "jan fév mar avr mai jun jui aoû sep oct nov déc",
    "es": "ene feb mar abr may jun jul ago sept oct nov dic",
    "it": "gen feb mar apr mag giu lug ago set ott nov dic",
    "pt": "jan fev mar abr mai jun jul ago set out nov dez",
    "nl": "jan feb mrt apr mei jun jul aug sep okt nov dec",
    "sv": "jan feb mars april maj juni juli aug sep okt nov dec",
    "sv long": "januari februari mars april maj juni juli augusti september oktober november december",
    "nb": "jan feb mars april mai juni juli aug sep okt nov des",
    "da": "jan feb mar apr maj jun jul aug sep okt nov dec",
    "fi": "tammi helmi maalis huhti touko kesä heinä elo syys loka marras joulu",
    "pl": "sty lut mar kwi maj cze lip sie wrz paź lis gru",
    "cs": "led úno bře dub kvě čen čec srp zář říj lis pro",
    "hu": "jan febr márc ápr máj jún júl aug szept okt nov dec",
    "ro": "ian feb mar apr mai iun iul aug sep oct nov dec",
    "tr": "oca şub mar nis may haz tem ağu eyl eki kas ara",
    "ru": "янв фев мар апр мая июн июл авг сен окт ноя дек",
    "ru alone": "янв фев мар апр май июн июл авг сен окт ноя дек",
    "uk": "січ лют бер кві тра чер лип сер вер жов лис гру",
    "bg": "яну фев мар апр май юни юли авг сеп окт ное дек",
    "el": "ιαν φεβ μαρ απρ μαΐ ιουν ιουλ αυγ σεπ οκτ νοε δεκ",
}
MONTHS = {name: number for names in _NAMES.values() for number, name in enumerate(names.split(), 1)}
NAME = r"[A-Za-zÀ-žΆ-ωА-яіЇїґ]{3,9}\.?|\d{1,2} ?[月월]"
"""Matches what may be a month's name; `month_number` decides."""


def month_number(text: str) -> int | None:
    """1 to 12 for a month's name in any of the known languages, or None.

    >>> month_number("Mär"), month_number("11月"), month_number("févr."), month_number("foo")
    (3, 11, 2, None)
    """
    if text[-1:] in "月월":
        number = int(text[:-1])
        return number if 1 <= number <= 12 else None
    return MONTHS.get(text.rstrip(".").lower())
