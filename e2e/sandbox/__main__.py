"""`python -m e2e.sandbox up|down|status|env`: a cluster on this machine, without containers."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .binaries import helm_path, kubectl_path
from .children import REPOSITORY_ROOT
from .cluster import STATE_FILE, Sandbox, User
from .node.namespace import is_inside, run_again_inside

DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "slipway-sandbox"
CHART_ACCOUNT = User.service_account("slipway-system", "slipway")
"""What the operator runs as where the chart is installed as docs/install.md says."""
DETACH_SECONDS = 240.0
DOWN_SECONDS = 60.0


def read_state(folder: Path) -> dict[str, Any] | None:
    """The description of the sandbox that runs with this data folder, or None."""
    try:
        state: dict[str, Any] = json.loads((folder / STATE_FILE).read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return state if _is_sandbox(int(state["pid"])) else None


def _is_sandbox(pid: int) -> bool:
    try:
        return b"e2e.sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _print_state(state: dict[str, Any]) -> None:
    lines = (
        ("kubeconfig", state["kubeconfig"]),
        ("API server", state["api_url"]),
        ("gateway (Envoy)", state["gateway_url"]),
        ("Prometheus", state["prometheus_url"]),
        ("mesh in effect", f"{state['mesh_admin_url']}/weights" if state["mesh_admin_url"] else ""),
        ("GPU metrics (simulated)", state["dcgm_url"]),
        ("logs", f"{state['data_dir']}/logs"),
    )
    for name, value in lines:
        if value:
            print(f"{name + ':':26}{value}")
    folder = "" if Path(state["data_dir"]) == DEFAULT_FOLDER else f" --data-dir {state['data_dir']}"
    print(f'\neval "$({sys.executable} -m e2e.sandbox env{folder})"   # kubectl, helm and slipway for this shell')
    print("kubectl get nodes")
    print(f"{sys.executable} -m e2e.sandbox down{folder}")


async def _serve(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    sandbox = Sandbox(
        options.data_dir,
        gpus=options.gpus,
        nodes=options.nodes,
        gateway_port=options.gateway_port,
        scrape_interval=options.scrape_interval,
        propagation_delay=options.propagation_delay,
        images=options.images,
        users=tuple(options.service_account) or (CHART_ACCOUNT,),
        assets=Path(assets) if assets else None,
    )
    async with sandbox:
        _print_state(sandbox.description())
        sys.stdout.flush()
        await stop.wait()


def _up(options: argparse.Namespace) -> int:
    if read_state(options.data_dir) is not None:
        print(f"a sandbox runs in {options.data_dir} already", file=sys.stderr)
        return 1
    if options.detach:
        return _detach(options.data_dir)
    if os.environ.get("KUBEBUILDER_ASSETS") and not is_inside():
        run_again_inside()
    asyncio.run(_serve(options))
    return 0


def _detach(folder: Path) -> int:
    argv = [word for word in sys.argv[1:] if word != "--detach"]
    folder.mkdir(parents=True, exist_ok=True)
    log_path = folder / "sandbox.log"
    with log_path.open("wb") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "e2e.sandbox", *argv],
            cwd=REPOSITORY_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if not _wait(lambda: read_state(folder) is not None or process.poll() is not None, DETACH_SECONDS):
        print(f"the sandbox is not up yet; see {log_path}", file=sys.stderr)
        return 1
    state = read_state(folder)
    if state is None:
        print(log_path.read_text(), file=sys.stderr)
        return 1
    _print_state(state)
    return 0


def _down(options: argparse.Namespace) -> int:
    state = read_state(options.data_dir)
    if state is None:
        print(f"no sandbox runs in {options.data_dir}", file=sys.stderr)
        return 1
    pid = int(state["pid"])
    os.kill(pid, signal.SIGTERM)
    if not _wait(lambda: not _is_sandbox(pid), DOWN_SECONDS):
        print(f"the sandbox (process {pid}) has not ended yet", file=sys.stderr)
        return 1
    return 0


def _status(options: argparse.Namespace) -> int:
    state = read_state(options.data_dir)
    if state is None:
        print(f"no sandbox runs in {options.data_dir}")
        return 1
    _print_state(state)
    return 0


def _env(options: argparse.Namespace) -> int:
    state = read_state(options.data_dir)
    if state is None:
        print(f"no sandbox runs in {options.data_dir}", file=sys.stderr)
        return 1
    programs = (kubectl_path(), helm_path(), Path(sys.executable))
    folders = dict.fromkeys(str(path.parent) for path in programs)
    print(f"export KUBECONFIG={state['kubeconfig']}")
    print(f'export PATH="{":".join(folders)}:$PATH"')
    print(f"export SLIPWAY_GATEWAY_URL={state['gateway_url']}")
    print(f"export SLIPWAY_PROMETHEUS_URL={state['prometheus_url']}")
    return 0


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


def _service_account(text: str) -> User:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise argparse.ArgumentTypeError(f"not NAMESPACE/NAME: {text}")
    return User.service_account(namespace, name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.sandbox", description=__doc__)
    commands = parser.add_subparsers(required=True)
    up = commands.add_parser("up", help="start a cluster; ends with Ctrl-C or `down`")
    up.add_argument("--gpus", type=int, default=8, help="simulated GPUs on each node")
    up.add_argument("--nodes", type=int, default=1)
    up.add_argument("--gateway-port", type=int, default=0, help="port of the gateway; 0 is a free one")
    up.add_argument("--scrape-interval", type=float, default=1.0, help="seconds")
    up.add_argument("--propagation-delay", type=float, default=0.1, help="seconds Envoy lags behind")
    up.add_argument("--images", type=Path, help="YAML file with more images")
    up.add_argument(
        "--service-account",
        type=_service_account,
        action="append",
        default=[],
        metavar="NAMESPACE/NAME",
        help="pods with this account get a token and a kubeconfig (default: slipway-system/slipway, the chart's)",
    )
    up.add_argument("--detach", action="store_true", help="go on in the background")
    up.set_defaults(run=_up)
    for name, run, text in (
        ("down", _down, "end the cluster"),
        ("status", _status, "show where everything is"),
        ("env", _env, "print shell settings for kubectl and helm"),
    ):
        commands.add_parser(name, help=text).set_defaults(run=run)
    for command in commands.choices.values():
        command.add_argument("--data-dir", type=Path, default=DEFAULT_FOLDER)
    return parser


def main() -> None:
    """Run one command."""
    options = _parser().parse_args()
    options.data_dir = options.data_dir.absolute()
    sys.exit(options.run(options))


if __name__ == "__main__":
    main()
