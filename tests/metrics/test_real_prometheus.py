"""The queries against a real Prometheus that scrapes small exporters."""

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_api_client import PrometheusConnect
from slipway.api.counters import increases
from slipway.api.samples import Quality
from slipway.metrics import PrometheusSource
from slipway.metrics.queries import DOWN
from slipway.metrics.snapshot import Snapshot

from e2e.sandbox.binaries import prometheus_path
from e2e.sandbox.ports import free_port

pytestmark = pytest.mark.e2e

REVISION = "sentiment-v1-aaaaaaaa"
LABELS = f'model="sentiment",version="v1",revision="{REVISION}"'
PER_SCRAPE = 10
FIRST_ERROR = 6
INTERVAL = 0.3
"""Seconds between scrapes, and those that one may take."""


@dataclass
class Exporter:
    """Counts its scrapes and says what the scrape of that number is to see."""

    page: Callable[[int], str]
    scrapes: int = 0

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve on a free port; gives host and port."""
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter.scrapes += 1
                body = exporter.page(exporter.scrapes).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"127.0.0.1:{listener.server_port}"
        finally:
            listener.shutdown()
            thread.join()
            listener.server_close()


def model_server(scrape: int) -> str:
    """A server that answers ten requests between scrapes, one of them badly from the sixth on."""
    errors = max(0, scrape - FIRST_ERROR + 1)
    good = PER_SCRAPE * scrape - errors
    lines = [
        f"slipway_requests_in_flight{{{LABELS}}} 3",
        f'slipway_requests_total{{{LABELS},code="200",shadow="false"}} {good}',
        f'slipway_requests_total{{{LABELS},code="200",shadow="true"}} {1000 * scrape}',
        f'slipway_request_duration_seconds_bucket{{{LABELS},shadow="false",le="0.1"}} {PER_SCRAPE * scrape}',
        f'slipway_request_duration_seconds_bucket{{{LABELS},shadow="false",le="+Inf"}} {PER_SCRAPE * scrape}',
    ]
    if errors:
        lines.append(f'slipway_requests_total{{{LABELS},code="500",shadow="false"}} {errors}')
    return "\n".join(lines) + "\n"


def gpu_exporter(_: int) -> str:
    """A GPU in use by the server's pod, and a blank one."""
    return (
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-0",Hostname="n",pod="p-0",namespace="nlp",container="server"} 42\n'
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-0",Hostname="n",pod="p-0",namespace="nlp",container="server"} 30\n'
        'DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-0",Hostname="n",pod="p-0",namespace="nlp",container="server"} 10\n'
    )


def target(address: str, **labels: str) -> dict[str, object]:
    return {"targets": [address], "labels": labels}


@contextmanager
def prometheus(folder: Path, jobs: dict[str, list[dict[str, object]]]) -> Iterator[str]:
    """Run Prometheus with static targets, scraped at an interval; JSON is YAML too."""
    config = {
        "global": {"scrape_interval": f"{INTERVAL * 1000:.0f}ms", "scrape_timeout": f"{INTERVAL * 1000:.0f}ms"},
        "scrape_configs": [{"job_name": job, "static_configs": targets} for job, targets in jobs.items()],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    port = free_port()
    command = [
        str(prometheus_path()),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


async def until(source: PrometheusSource, condition: Callable[[Snapshot], bool]) -> Snapshot:
    """Snapshots until one meets a condition."""
    async with asyncio.timeout(120):
        while True:
            snapshot = await source.snapshot(time.time())
            if condition(snapshot):
                return snapshot
            await asyncio.sleep(0.05)


async def test_counts_are_exact_and_labels_are_understood(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(Exporter(model_server).serving())
        gpus = stack.enter_context(Exporter(gpu_exporter).serving())
        jobs = {
            "pods": [
                target(server, namespace="nlp", pod="p-0", node="n"),
                target(f"127.0.0.1:{free_port()}", namespace="nlp", pod="p-1", node="n"),
            ],
            "dcgm": [target(gpus, namespace="gpu-operator", pod="dcgm-exporter")],
        }
        url = stack.enter_context(prometheus(tmp_path, jobs))
        source = PrometheusSource(url, rate_window=5 * INTERVAL)
        stack.callback(source.close)

        def enough(snapshot: Snapshot) -> bool:
            metrics = snapshot.view("nlp", "sentiment").of(REVISION)
            scrapes = metrics.scrapes.get("p-0", ())
            if len(scrapes) <= FIRST_ERROR + 10 or metrics.gpu_source != "dcgm":
                return False
            # A scrape may come between two of a snapshot's queries.
            whole = all(series.samples[-1][0] == scrapes[-1] for series in metrics.requests)
            # A busy machine scrapes late now and then; the rate is what it is as soon as the last ones were on time.
            return whole and metrics.arrivals.value == pytest.approx(PER_SCRAPE / INTERVAL, rel=0.2)

        snapshot = await until(source, enough)
        connection = PrometheusConnect(url=url)
        stack.callback(connection.close)
        down = connection.custom_query(DOWN)
    view = snapshot.view("nlp", "sentiment")
    metrics = view.of(REVISION)
    assert view.scrape_interval == pytest.approx(INTERVAL, rel=0.2)
    assert [series["metric"]["pod"] for series in down] == ["p-1"]

    scrapes = metrics.scrapes["p-0"]
    counted = {
        series.code: sum(found.amount for found in increases(series.samples, scrapes, scrapes[0], view.scrape_interval))
        for series in metrics.requests
    }
    # The first scrape is a baseline; all that was asked since is counted, the first error with it.
    assert counted["500"] == len(scrapes) - FIRST_ERROR + 1
    assert counted["200"] + counted["500"] == PER_SCRAPE * (len(scrapes) - 1)
    assert metrics.error_rate.value == pytest.approx(0.1)
    assert metrics.in_flight.value == 3
    assert metrics.arrivals.quality is Quality.OK
    assert (metrics.gpu_utilization.value, metrics.gpu_memory.value) == (42.0, 75.0)
