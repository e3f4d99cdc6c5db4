"""Fields that are off unless we say so, and that would make status untrue if somebody else switched them on.

They are not written, being off by default, so that an object is the same whichever release renders it. Where one is on,
it is written once, and so taken over and switched off; with the next apply it is nobody's again.
"""

from collections.abc import Mapping
from typing import Any

from slipway.kube.kinds import DEPLOYMENT, SERVICE, Kind, kind_of

__all__ = ["switched_off"]

Object = Mapping[str, Any]

_SWITCHES: Mapping[Kind, str] = {DEPLOYMENT: "paused", SERVICE: "publishNotReadyAddresses"}
"""A Deployment that is paused makes no pods of what is written to it, and says so to nobody. A Service with the other
one leads requests to pods that cannot answer."""


def switched_off(wanted: Object, live: Object) -> Object:
    """What is wanted, with a field of the spec written out as off that somebody has switched on."""
    name = _SWITCHES.get(kind_of(wanted))
    if name is None or name in wanted["spec"] or (live.get("spec") or {}).get(name) is not True:
        return wanted
    return {**wanted, "spec": {**wanted["spec"], name: False}}
