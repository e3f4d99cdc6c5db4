"""Match conditions of a VirtualService as Envoy route matches."""

from e2e.sandbox.mesh.names import Json

_PSEUDO_HEADERS = {"method": ":method", "authority": ":authority", "scheme": ":scheme"}


def route_match(match: Json | None) -> Json:
    """Envoy's match for one HTTPMatchRequest; None stands for a route without conditions, which takes everything."""
    if match is None:
        return {"prefix": "/"}
    envoy: Json = _path(match.get("uri") or {})
    # Envoy knows no case-insensitive regex matches by this switch.
    if "safe_regex" not in envoy:
        envoy["case_sensitive"] = not match.get("ignoreUriCase", False)
    headers = [_header(name, value) for name, value in sorted((match.get("headers") or {}).items())]
    headers += [
        {**_header(name, value), "invert_match": True}
        for name, value in sorted((match.get("withoutHeaders") or {}).items())
    ]
    headers += [_header(header, match[field]) for field, header in _PSEUDO_HEADERS.items() if match.get(field)]
    if headers:
        envoy["headers"] = headers
    query = [_query_parameter(name, value) for name, value in sorted((match.get("queryParams") or {}).items())]
    if query:
        envoy["query_parameters"] = query
    return envoy


def takes_everything(match: Json) -> bool:
    """Whether an Envoy match leaves nothing to the routes after it."""
    any_path = match.get("prefix") == "/" or match.get("safe_regex", {}).get("regex") == ".*"
    return any_path and "headers" not in match and "query_parameters" not in match


def _path(uri: Json) -> Json:
    if "exact" in uri:
        return {"path": uri["exact"]}
    if "regex" in uri:
        return {"safe_regex": {"regex": uri["regex"]}}
    if uri.get("pathPrefix", "/") != "/":
        # Gateway API's prefixes end at a slash: /a is a prefix of /a/b, but not of /ab.
        return {"path_separated_prefix": uri["pathPrefix"].rstrip("/")}
    return {"prefix": uri.get("prefix", "/")}


def _string_match(value: Json) -> Json | None:
    if "exact" in value:
        return {"exact": value["exact"]}
    if "prefix" in value:
        return {"prefix": value["prefix"]}
    if "regex" in value:
        return {"safe_regex": {"regex": value["regex"]}}
    return None


def _header(name: str, value: Json) -> Json:
    matcher = _string_match(value or {})
    if matcher is None:
        return {"name": name, "present_match": True}
    return {"name": name, "string_match": matcher}


def _query_parameter(name: str, value: Json) -> Json:
    matcher = _string_match(value or {})
    if matcher is None:
        return {"name": name, "present_match": True}
    return {"name": name, "string_match": matcher}
