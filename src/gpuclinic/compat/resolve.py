"""From what is wanted to the versions and builds that pip or conda would bring."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.compat.demands import Demand, NoRequirementError, canonical, demand
from gpuclinic.compat.versions import cuda_of_tag, numbers, satisfies, two, version
from gpuclinic.compat.wants import Wanted, cuda_tag
from gpuclinic.knowledge.compat import Build, Pin, Wheel, tables

if TYPE_CHECKING:
    from gpuclinic.compat.context import Context

CONDA_CUDA = ("pytorch-cuda", "cudatoolkit", "cuda-version", "cpuonly")
TORCH_FAMILY = ("torch", "torchvision", "torchaudio", "torchtext")


class Chosen(msgspec.Struct):
    """A package with the version and the build that would be there.

    implied_by: the package that demands it, "" where it is wanted itself. missing: why version or build are not known, as an id of texts.
    """

    name: str
    release: str
    variant: str
    wanted: Wanted | None
    build: Build | None = None
    wheel: Wheel | None = None
    implied_by: str = ""
    missing: str = ""
    family_cuda: str = ""
    asked_extras: frozenset[str] = frozenset()

    @property
    def extras(self) -> frozenset[str]:
        """The extras that it is installed with."""
        return self.wanted.extras if self.wanted is not None else self.asked_extras

    @property
    def label(self) -> str:
        """ "torch 2.9.0+cu130"."""
        local = self.variant or (self.wanted.local if self.wanted is not None and self.wanted.exact else "")
        return f"{self.name} {self.release}{'+' + local if local else ''}".strip()

    @property
    def cuda(self) -> str:
        """The CUDA release that it was built with: "12.1", "none", or "" where not known."""
        if self.family_cuda:
            return self.family_cuda
        if self.build is not None and self.build.cuda not in ("torch", "toolkit", "jit"):
            return self.build.cuda
        return ""


class Resolution(msgspec.Struct):
    """chosen: in the order of the wants, implied ones after them. pins: what they demand of one another. by_name: the chosen ones.

    refused: pairs of wants for one package that no version satisfies together.
    """

    chosen: list[Chosen]
    pins: list[tuple[Chosen, Pin]]
    by_name: dict[str, Chosen] = {}
    refused: list[tuple[Wanted, Wanted]] = []

    def get(self, name: str) -> Chosen | None:
        """A package by its name."""
        return self.by_name.get(name)


@functools.cache
def _wheels() -> dict[str, list[Wheel]]:
    found: dict[str, list[Wheel]] = {}
    for row in tables().wheels:
        found.setdefault(row.package, []).append(row)
    return found


@functools.cache
def _builds() -> dict[str, list[Build]]:
    found: dict[str, list[Build]] = {}
    for row in tables().builds:
        found.setdefault(row.package, []).append(row)
    return found


@functools.cache
def _pins() -> dict[str, list[Pin]]:
    found: dict[str, list[Pin]] = {}
    for row in tables().pins:
        found.setdefault(row.package, []).append(row)
    return found


def wheels_of(name: str) -> list[Wheel]:
    """All versions that the index has, oldest first; [] where no table lists the package."""
    return _wheels().get(name, [])


def builds_of(name: str) -> list[Build]:
    """All rows of a package."""
    return _builds().get(name, [])


@functools.lru_cache(16_384)
def pins_of(name: str, release: str, extras: frozenset[str]) -> tuple[Pin, ...]:
    """What a version demands."""
    exact = "==" + release
    return tuple(
        p for p in _pins().get(name, [])
        if (not p.extra or p.extra in extras)
        and (p.versions == exact or ((p.reason != "metadata" or p.versions[2:3] == release[:1]) and satisfies(release, p.versions)))
    )  # fmt: skip


@functools.lru_cache(8192)
def requirement(text: str) -> Demand | None:
    """As pip reads it; None where it is none."""
    try:
        return demand(text)
    except NoRequirementError:
        return None


def offered(wheel: Wheel, machine: str) -> str:
    """The Pythons for which there is a wheel for a machine: "3.8 3.9", "3.9+", "3"."""
    return wheel.aarch64 if machine == "aarch64" else wheel.x86_64


def has_python(pythons: str, python: str) -> bool:
    """Whether one of the tags fits a Python ("3.10", "3.13t")."""
    mine = numbers(python)
    for tag in pythons.split():
        if tag == python or (tag in ("2", "3") and mine[:1] == numbers(tag)):
            return True
        if tag.endswith("+") and not python.endswith("t") and mine >= numbers(tag[:-1]):
            return True
    return False


def accepts_python(wheel: Wheel, python: str, full: str) -> bool:
    """Whether Requires-Python admits it."""
    exact = full if full.count(".") == 2 and full[-1].isdigit() else python.rstrip("t") + ".99"
    return satisfies(exact, wheel.requires_python)


def resolve(context: Context) -> Resolution:
    """Versions that are named first; then what they demand; then the newest that fits the rest."""
    wanted = _joined(context.wanted)
    chosen: dict[str, Chosen] = {}
    demands = _Demands()
    for want in sorted(wanted, key=lambda w: not w.exact):
        chosen[want.name] = _choose(want, context, chosen, demands)
        demands.add(chosen[want.name])
    for one in list(chosen.values()):
        _imply(one, chosen, context)
    ordered = [chosen[w.name] for w in wanted if w.name in chosen]
    asked = {w.name for w in wanted}
    ordered += [c for name, c in chosen.items() if name not in asked]
    for one in ordered:
        _build(one, context, chosen)
    _family(ordered, context)
    pins = [(one, pin) for one in ordered if one.release for pin in _pins_of(one)]
    return Resolution(ordered, pins, chosen, [] if context.installed else _contradictions(context.wanted))


class _Demands:
    """What the packages that were chosen demand, by the name of what they demand it of."""

    def __init__(self) -> None:
        self._held: dict[str, list[str]] = {}

    def add(self, one: Chosen) -> None:
        for pin in pins_of(one.name, one.release, one.extras):
            self._held.setdefault(_name_of(pin.requires), []).append(pin.requires)

    def of(self, name: str) -> list[str]:
        return self._held.get(name, [])


def _contradictions(wanted: list[Wanted]) -> list[tuple[Wanted, Wanted]]:
    """Wants of one name of which one names a version that another excludes: pip refuses both together. The first of each name."""
    by_name: dict[str, list[Wanted]] = {}
    for want in wanted:
        by_name.setdefault(want.name, []).append(want)
    found = []
    for wants in by_name.values():
        exact = next((want for want in wants if want.exact), None)
        other = next((w for w in wants if exact is not None and _excludes(w, exact)), None)
        if exact is not None and other is not None:
            found.append((exact, other))
    return found


def _excludes(want: Wanted, exact: Wanted) -> bool:
    locals_differ = bool(want.exact and exact.local and want.local and want.local != exact.local)
    return locals_differ or (version(exact.exact) is not None and not satisfies(exact.exact, want.spec))


def _pins_of(one: Chosen) -> tuple[Pin, ...]:
    pins = pins_of(one.name, one.release, one.extras)
    if one.name == "torch" and one.build is not None and one.variant:  # other builds pin other libraries
        pins = tuple(pin for pin in pins if not re.match(r"(?:nvidia|cuda)-", pin.requires))
        if uses_wheels(one) and one.build.cudnn:
            asks = f"nvidia-cudnn-cu{numbers(one.build.cuda)[0]}=={one.build.cudnn}"
            pins += (Pin("torch", "", "", asks, "metadata", one.build.source),)
    return pins


def uses_wheels(torch: Chosen) -> bool:
    """Whether a torch build loads NVIDIA's wheels: the default ones since 1.13, those for CUDA 12 since 2.1, all since 2.3."""
    release, cuda = numbers(torch.release), numbers(torch.cuda)
    if torch.wanted is not None and torch.wanted.conda:
        return False
    return bool(cuda) and (
        release >= (2, 3) or (release >= (2, 1) and cuda[0] >= 12) or (not torch.variant and release >= (1, 13))
    )


def _joined(wanted: list[Wanted]) -> list[Wanted]:
    """One want for each name; several of a name are joined."""
    found: dict[str, Wanted] = {}
    for want in wanted:
        held = found.get(want.name)
        if held is None:
            found[want.name] = want
        elif want.wheel or (want.exact and not held.exact):
            found[want.name] = msgspec.structs.replace(want, extras=want.extras | held.extras)
        else:
            spec = ",".join(s for s in (held.spec, want.spec) if s)
            found[want.name] = msgspec.structs.replace(
                held, spec=spec, extras=held.extras | want.extras, local=held.local or want.local
            )
    return list(found.values())


def _choose(want: Wanted, context: Context, others: dict[str, Chosen], demands: _Demands) -> Chosen:
    variant = _variant_of(want, context)
    if want.exact:
        return Chosen(want.name, want.exact, variant, want)
    fitting = [w.version for w in wheels_of(want.name) if satisfies(w.version, want.spec)]
    demanded = demands.of(want.name)
    agreed = [v for v in fitting if all(_satisfies(v, text) for text in demanded)]
    agreed = [v for v in agreed if _content(want, v, others)] or agreed
    release = newest(want.name, agreed or fitting, context)
    if not release and not wheels_of(want.name):
        row = next((b for b in reversed(builds_of(want.name)) if not b.variant), None)
        return Chosen(
            want.name, "", variant, want, missing="" if row is not None and row.needs == "source" else "unknown.version"
        )
    return Chosen(want.name, release, variant, want, missing="" if release else "unknown.version")


def _content(want: Wanted, release: str, others: dict[str, Chosen]) -> bool:
    """Whether what a version demands is there already, as far as it is named: pip goes back to older versions until it is."""
    for pin in pins_of(want.name, release, want.extras):
        other = others.get(_name_of(pin.requires))
        if other is not None and other.release and not _satisfies(other.release, pin.requires):
            return False
    return True


def newest(name: str, releases: list[str], context: Context) -> str:
    """The newest that pip would take for this Python and machine; the newest of all where none fits."""
    rows = {w.version: w for w in wheels_of(name)}
    ordered = sorted(releases, key=lambda text: version(text) or version("0"), reverse=True)  # type: ignore[arg-type,return-value]
    for release in ordered:
        row = rows.get(release)
        if row is None:
            continue
        pythons = offered(row, context.machine)
        glibc = row.glibc_aarch64 if context.machine == "aarch64" else row.glibc_x86_64
        if context.python and not (
            has_python(pythons, context.python) and accepts_python(row, context.python, context.python_full)
        ):
            continue
        if pythons and not (context.glibc and glibc and context.glibc < numbers(glibc)):
            return release
    return ordered[0] if ordered else ""


@functools.lru_cache(8192)
def _name_of(text: str) -> str:
    found = requirement(text)
    return canonical(found.name) if found else ""


def _satisfies(release: str, text: str) -> bool:
    found = requirement(text)
    return found is None or satisfies(release, str(found.specifier))


def _variant_of(want: Wanted, context: Context) -> str:
    """The build that a local version, a named index or a conda package asks for; "" is the default index's."""
    local = re.sub(r"\.(?:with\.pypi\.cudnn|cxx11\.abi|post\d+)$", "", want.local.lower())
    if want.name in TORCH_FAMILY or want.name in ("xformers", "vllm", "jaxlib", "paddlepaddle-gpu"):
        if local.startswith("rocm"):
            return "rocm"
        if want.name == "jaxlib":
            return _jaxlib_variant(local)
        tag = re.match(r"(cu\d{2,4}|cpu|post\d+)", local)
        if tag:
            return tag[1]
        if context.index and want.name in TORCH_FAMILY and not local:
            return "rocm" if context.index.startswith("rocm") else context.index
    return local if local == "cpu" else ""


def _jaxlib_variant(local: str) -> str:
    """ "cuda11.cudnn82" of 0.1.73 on, "cuda111" before; "cuda" alone is what 0.4 called cuda11.cudnn86."""
    return {"cuda": "cuda11.cudnn86", "cuda11": "cuda11.cudnn82", "cuda12": "cuda12.cudnn89"}.get(local, local)


_IMPLIES = ("torch",)


def _imply(one: Chosen, chosen: dict[str, Chosen], context: Context) -> None:
    """Brings in what decides about CUDA: the torch of vllm, xformers, torchvision; the plugin of jax[cuda12]."""
    if one.name == "jax":
        _imply_jax(one, chosen, context)
        return
    if not one.release:
        return
    for pin in pins_of(one.name, one.release, one.extras):
        found = requirement(pin.requires)
        if found is None or pin.reason != "metadata":
            continue
        name = canonical(found.name)
        if name not in _IMPLIES or name in chosen:
            continue
        fitting = [w.version for w in wheels_of(name) if satisfies(w.version, str(found.specifier))]
        release = newest(name, fitting, context)
        if release:
            tag = one.variant if re.fullmatch(r"cu\d{2,4}|cpu|rocm", one.variant) else ""
            chosen[name] = Chosen(name, release, tag, None, implied_by=one.name)


def _imply_jax(one: Chosen, chosen: dict[str, Chosen], context: Context) -> None:
    """jax[cuda12], jax[cuda12_local], jax[cuda12_pip], jax[cuda11_pip] ..."""
    extras = one.wanted.extras if one.wanted else frozenset()
    extra = next((e for e in sorted(extras) if e.startswith("cuda")), "")
    if not extra or not one.release:
        return
    major = re.match(r"cuda(\d\d)?", extra)
    if (major and major[1] == "11") or not satisfies(one.release, ">=0.4.22"):
        variant = (
            "cuda11.cudnn86"
            if not major or major[1] in (None, "11")
            else "cuda12.cudnn88"
            if not satisfies(one.release, ">=0.4.13")
            else "cuda12.cudnn89"
        )
        chosen.setdefault("jaxlib", Chosen("jaxlib", one.release, variant, None, implied_by="jax"))
        return
    name = f"jax-cuda{major[1] if major and major[1] else '12'}-plugin"
    fitting = [
        w.version for w in wheels_of(name) if satisfies(w.version, f"=={one.release}") or w.version == one.release
    ]
    if not fitting:
        fitting = [w.version for w in wheels_of(name) if satisfies(w.version, f"<={one.release}")]
        fitting = sorted(fitting, key=lambda text: version(text) or version("0"))[-1:]  # type: ignore[arg-type,return-value]
    brought = frozenset() if extra.endswith(("-local", "_local")) else frozenset({"with-cuda"})
    release = newest(name, fitting, context) or one.release
    chosen.setdefault(name, Chosen(name, release, "", None, implied_by="jax", asked_extras=brought))


def _build(one: Chosen, context: Context, chosen: dict[str, Chosen]) -> None:
    """Finds the row of the build and of the wheel."""
    if one.missing:
        return
    one.wheel = next(
        (w for w in wheels_of(one.name) if w.version == one.release or version(w.version) == version(one.release)), None
    )
    if one.name in ("torchvision", "torchaudio"):
        return
    rows = [b for b in builds_of(one.name) if not one.release or satisfies(one.release, b.versions)]
    if of_ones_own(one) and (told := _told_by_image(one, context)) is not None:
        one.build = told
        return
    if of_ones_own(one):
        one.missing = "unknown.build"
        return
    machine = one.wanted.machine if one.wanted and one.wanted.machine else context.machine
    if one.variant and any(b.variant for b in rows):
        mine = [b for b in rows if b.variant == one.variant and machine in b.machines.split()]
    elif one.name == "torch" and (_from_conda(one) or any(name in chosen for name in CONDA_CUDA)):
        mine = _conda_torch(rows, chosen)
    else:
        mine = [b for b in rows if machine in b.default.split()]
    if mine:
        one.build = mine[0] if one.release else mine[-1]
        if one.name == "torch" and (_from_conda(one) or any(name in chosen for name in CONDA_CUDA)):
            one.variant = one.variant or one.build.variant
    elif builds_of(one.name):
        one.missing = "missing.build" if _never_made(one, rows, machine) else "unknown.build"


def of_ones_own(one: Chosen) -> bool:
    """A torch with a local version that no index has: somebody built it, and nothing tells with what."""
    local = one.wanted.local if one.wanted is not None else ""
    parsed = version(one.release)
    return one.name == "torch" and not one.variant and bool(local or (parsed is not None and parsed.is_prerelease))


def _told_by_image(one: Chosen, context: Context) -> Build | None:
    """What NVIDIA's framework images say of the torch that was built in them: CUDA_VERSION and TORCH_CUDA_ARCH_LIST."""
    listed = re.findall(r"(\d{1,2}\.\d[a-z]?)(\+PTX)?", context.variables.get("TORCH_CUDA_ARCH_LIST", ""))
    if not listed or not context.container_cuda or "NVIDIA_PYTORCH_VERSION" not in context.variables:
        return None
    return Build(
        "torch", f"=={one.release}", "", context.machine, context.machine, context.container_cuda, " ".join(arch for arch, _ in listed),
        " ".join(arch for arch, ptx in listed if ptx) or "none", "", "", "own", "", "", "", "", "", "the image's own variables",
    )  # fmt: skip


def _never_made(one: Chosen, rows: list[Build], machine: str) -> bool:
    """Whether a torch was never built for the CUDA of its tag: older or newer than all that its release was built for."""
    asked = cuda_of_tag(one.variant)
    made = [numbers(row.cuda) for row in rows if machine in row.machines.split() and numbers(row.cuda)]
    return one.name == "torch" and asked is not None and bool(made) and not min(made) <= numbers(asked) <= max(made)


def _from_conda(one: Chosen) -> bool:
    return one.wanted is not None and one.wanted.conda


def _conda_torch(rows: list[Build], chosen: dict[str, Chosen]) -> list[Build]:
    """conda's pytorch without a telling build string: what stands beside it (pytorch-cuda, cudatoolkit) decides."""
    if "cpuonly" in chosen:
        return [b for b in rows if b.variant == "cpu"]
    for name in CONDA_CUDA:
        beside = chosen.get(name)
        if beside is not None and beside.wanted is not None:
            tag = cuda_tag(two(beside.wanted.spec.lstrip("=").rstrip(".*") or beside.release))
            return [b for b in rows if b.variant == tag]
    return [b for b in rows if b.default]


def _family(chosen: list[Chosen], context: Context) -> None:
    """torchvision and torchaudio are built as the torch of their tag; extensions take what torch has."""
    torch = next((c for c in chosen if c.name == "torch"), None)
    for one in chosen:
        if one.name in ("torchvision", "torchaudio", "torchtext") or (one.name == "xformers" and not one.variant):
            one.family_cuda = _family_cuda(one, context)
        elif one.wanted is not None and one.wanted.built_for.cuda and one.name != "torch":
            one.family_cuda = one.wanted.built_for.cuda
        elif one.build is not None and one.build.cuda == "torch" and torch is not None:
            one.family_cuda = ""


def _family_cuda(one: Chosen, context: Context) -> str:
    if one.variant == "cpu":
        return "none"
    if one.variant:
        return cuda_of_tag(one.variant) or ""
    for pin in pins_of(one.name, one.release, frozenset()):
        found = requirement(pin.requires)
        if found is not None and found.name == "torch":
            release = next((s.version.removesuffix(".*") for s in found.specifier if s.operator == "=="), "")
            row = next(
                (
                    b
                    for b in builds_of("torch")
                    if context.machine in b.default.split() and release and satisfies(release, b.versions)
                ),
                None,
            )
            return row.cuda if row else ""
    return ""
