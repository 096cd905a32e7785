"""The only room that reads the examined machine."""

from gpuclinic.observe.host import Host, Item
from gpuclinic.observe.places import Places

__all__ = ["Host", "Item", "Places"]
