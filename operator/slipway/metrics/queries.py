"""What Prometheus is asked: raw scrapes, a fixed number of queries for all objects together.

Range selectors answer with the scrapes themselves and their times. So nothing is extrapolated, and the look-back of
instant queries cannot pass an old sample off as a present one. What the mesh sends is the exception: its series are too
many to be read one by one, and as a lower bound of demand a rate is exact enough.
"""

from slipway.metrics.presets import FOREIGN_NAMES

__all__ = ["DOWN", "GPU_RANGE", "gateway_query", "gpu_query", "server_queries"]

DOWN = 'up{pod!="",namespace!=""} == 0'
"""Targets that are known and do not answer; a target that is gone is not among them."""
GPU_RANGE = 120.0
"""Seconds; GPU exporters are slow, their samples are 30 s apart or more."""

_LOAD = "slipway_queue_duration_seconds_sum|slipway_queue_duration_seconds_count|slipway_queue_depth"
_GPU = "DCGM_FI_DEV_GPU_UTIL|DCGM_FI_PROF_GR_ENGINE_ACTIVE|DCGM_FI_DEV_FB_USED|DCGM_FI_DEV_FB_FREE"


def server_queries(evidence_range: float) -> tuple[str, ...]:
    """The queries for model servers, which all reach ``evidence_range`` seconds back: a counter that begins later than
    the scrapes of its pod is taken for a new one.

    The gauges that tell when a pod was scraped come first, since a scrape that arrives between two queries must not
    look like one in which a counter was missing.
    """
    reach = f"[{round(evidence_range)}s]"
    return (
        '{__name__=~"slipway_requests_in_flight|slipway_model_ready"}' + reach,
        'slipway_requests_total{shadow!="true"}' + reach,
        'slipway_request_duration_seconds_bucket{shadow!="true"}' + reach,
        f'{{__name__=~"{_LOAD}|slipway_executor_busy_seconds_total|slipway_shadow_comparisons_total"}}' + reach,
        f'{{__name__=~"{FOREIGN_NAMES}",slipway_dev_engine!=""}}' + reach,
    )


def gateway_query(rate_window: float) -> str:
    """The query for what the mesh's clients and gateways send to each Service, rejected and unanswered requests too."""
    return (
        "sum by (destination_service_namespace, destination_service_name) "
        f'(rate(istio_requests_total{{reporter="source"}}[{round(rate_window)}s]))'
    )


def gpu_query() -> str:
    """The query for GPUs."""
    return f'{{__name__=~"{_GPU}"}}[{round(GPU_RANGE)}s]'
