"""Retry policies, including the one that is used when a route says nothing."""

from typing import Final

from e2e.sandbox.mesh.names import Json, envoy_duration

DEFAULT_ATTEMPTS: Final = 2
DEFAULT_CONDITIONS: Final = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"


def retry_policy(retries: Json | None) -> Json | None:
    """Envoy's policy for a route's `retries`; None for no retries at all (``attempts: 0``)."""
    if retries is None:
        return {**_policy(DEFAULT_CONDITIONS, DEFAULT_ATTEMPTS), "retriable_status_codes": [503]}
    attempts = retries.get("attempts", 0)
    if attempts <= 0:
        return None
    if retries.get("retryOn"):
        conditions, codes = _split_conditions(retries["retryOn"])
    else:
        conditions, codes = DEFAULT_CONDITIONS, [503]
    policy = _policy(conditions, attempts)
    if codes:
        policy["retriable_status_codes"] = codes
    if retries.get("perTryTimeout"):
        policy["per_try_timeout"] = envoy_duration(retries["perTryTimeout"])
    return policy


def _policy(conditions: str, attempts: int) -> Json:
    predicate = "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    return {
        "retry_on": conditions,
        "num_retries": attempts,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {"@type": f"type.googleapis.com/{predicate}"},
            }
        ],
        "host_selection_retry_max_attempts": "5",
    }


def _split_conditions(text: str) -> tuple[str, list[int]]:
    """Istio lets status codes stand among the conditions; Envoy wants them apart."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    codes = [int(word) for word in words if word.isdigit()]
    conditions = [word for word in words if not word.isdigit()]
    if codes and "retriable-status-codes" not in conditions:
        conditions.append("retriable-status-codes")
    return ",".join(conditions), codes
