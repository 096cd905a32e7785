"""Our own files, by the XDG base directory rules: the cache (one that cannot be used is no error), and what must be kept."""

from gpuclinic.store._cache import cache_folder, read_cache, write_cache
from gpuclinic.store._state import runtime_state_folder, state_folder
from gpuclinic.store._toml import toml_loads
from gpuclinic.store._whole import whole_file

__all__ = [
    "cache_folder",
    "read_cache",
    "runtime_state_folder",
    "state_folder",
    "toml_loads",
    "whole_file",
    "write_cache",
]
