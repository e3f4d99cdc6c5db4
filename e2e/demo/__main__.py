"""``make demo``: start a sandbox and the operator, tell the story, print the summary, leave a picture."""

import argparse
import asyncio
import json
import logging
import os
import shutil
import signal
import sys
from pathlib import Path

from e2e.demo.manifest import MODEL, NAMESPACE
from e2e.demo.story import Story, start_operator
from e2e.demo.table import Screen
from e2e.sandbox.binaries import helm_path, kubectl_path
from e2e.sandbox.children import REPOSITORY_ROOT
from e2e.sandbox.cluster import Cluster, cluster

__all__ = ["main"]

GPUS = 12


async def _run(options: argparse.Namespace, screen: Screen) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        # Also in the background, where a shell has Ctrl-C ignored: the cluster is taken down, not left behind.
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    folder = REPOSITORY_ROOT / ".slipway" / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    screen.say("starting a cluster on this machine: API server, controllers, node agent, Envoy, Prometheus")
    async with cluster(gpus=GPUS) as running:
        operator = await start_operator(running, folder)
        try:
            story = Story(running, folder, screen, options.picture)
            summary = await story.run()
            print("\nSummary (sandbox on one machine; GPUs are simulated, requests, Envoy and Prometheus are real)")
            print("\n".join(f"  {line}" for line in summary.lines()))
            print(f"  picture                             {options.picture}")
            for fault in summary.faults:
                print(f"  NOT AS IT SHOULD BE: {fault}")
            if options.json:
                options.json.write_text(json.dumps(summary.to_json(), indent=2))
            if options.keep:
                await _keep(running)
            return 1 if summary.faults else 0
        finally:
            await operator.stop()


async def _keep(running: Cluster) -> None:
    folders = ":".join(str(path.parent) for path in (kubectl_path(), helm_path(), Path(sys.executable)))
    print(f"""
Everything goes on running until you press Ctrl-C (or end process {os.getpid()}). In another terminal:

  export KUBECONFIG={running.kubeconfig} GATEWAY={running.gateway_url}
  export PATH={folders}:$PATH
  kubectl -n {NAMESPACE} get mdep -w
  kubectl -n {NAMESPACE} describe mdep {MODEL}
  kubectl -n {NAMESPACE} patch mdep {MODEL} --type merge -p '{{"spec":{{"serve":"v1"}}}}'
  slipway -n {NAMESPACE} status {MODEL}
  slipway -n {NAMESPACE} promote {MODEL}
  curl -s -H 'Host: {MODEL}.{NAMESPACE}.svc.cluster.local' $GATEWAY/v2/models/{MODEL}
  Prometheus: {running.prometheus_url}
""")
    await asyncio.Event().wait()


def main() -> int:
    """Run the demo; the exit code is 1 when anything did not happen as it should."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C")
    parser.add_argument("--picture", type=Path, default=Path("demo.png"), help="where the picture goes")
    parser.add_argument("--json", type=Path, help="write the summary as JSON as well")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    try:
        with Screen() as screen:
            return asyncio.run(_run(options, screen))
    except asyncio.CancelledError:
        return 130


if __name__ == "__main__":
    sys.exit(main())
