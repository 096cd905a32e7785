"""Our own files: the cache, by the XDG base directory rules. A cache that cannot be used is no error."""

from gpuclinic.store._cache import cache_folder, read_cache, write_cache
from gpuclinic.store._whole import whole_file

__all__ = ["cache_folder", "read_cache", "whole_file", "write_cache"]
