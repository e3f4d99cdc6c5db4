"""The command line: the operator itself, and what people and pipelines ask of it."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slipway import __version__
from slipway.api.errors import SlipwayError
from slipway.api.status import Verb
from slipway.cli.arguments import name_of, namespace_of, seconds_of

__all__ = ["main"]

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells give it."""

_Subcommands = Any  # argparse gives the type of its subparsers no public name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 no answer in time,
    130 interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parsed = _parser(given).parse_args(given)
    if parsed.kubeconfig:
        os.environ["KUBECONFIG"] = parsed.kubeconfig
    try:
        return _run(parsed)
    except SlipwayError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.remedy:
            print(error.remedy, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of a pipe has left, such as head: nobody is there to be told.
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser(with_flags: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; flags of commands in ``with_flags`` only, since some of their libraries take a while to load."""
    parser = argparse.ArgumentParser(prog=_program(), description="Model deployments on Kubernetes.")
    parser.add_argument("--version", action="version", version=f"slipway {__version__}")
    parser.add_argument(
        *("-n", "--namespace"), type=namespace_of, default="", help="namespace (default: that of the current context)"
    )
    parser.add_argument("--kubeconfig", default="", help="kubeconfig file (default: $KUBECONFIG, ~/.kube/config)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    operator = commands.add_parser("run", help="run the operator")
    if "run" in with_flags:
        from slipway.cli.run import add_arguments

        add_arguments(operator)
    commands.add_parser("crd", help="print the CustomResourceDefinition")
    _add_render(commands)
    simulator = commands.add_parser("simulate", help="replay a load: what scaling would have done, and at what cost")
    if "simulate" in with_flags:
        from slipway.cli.simulate import add_arguments as add_simulation

        add_simulation(simulator)
    _add_views(commands)
    _add_files(commands)
    _add_actions(commands)
    completion = commands.add_parser("completion", help="print a script that completes commands in a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))
    return parser


def _program() -> str:
    """As the user calls it: ``kubectl slipway`` runs a program of the name kubectl-slipway."""
    return "kubectl slipway" if Path(sys.argv[0]).name.startswith("kubectl-") else "slipway"


def _add_views(commands: _Subcommands) -> None:
    status = commands.add_parser("status", help="show what is served, where a rollout stands, and what happens next")
    status.add_argument("name", metavar="NAME", nargs="?", type=name_of, help="name; none shows all of the namespace")
    status.add_argument("-w", "--watch", action="store_true", help="again whenever it changes, until interrupted")
    _add_output(status)
    _add_namespace(status)
    explain = _named(commands, "explain", "say why: conditions, evidence, scaling decisions, a test of the metrics")
    _add_output(explain)
    explain.add_argument("--prometheus-url", default="", help="Prometheus as it is reached from here, for the test")
    _add_output(_named(commands, "history", "list the rollouts that have ended, with their evidence"))


def _add_files(commands: _Subcommands) -> None:
    lint = commands.add_parser("lint", help="check files without a cluster")
    lint.add_argument("-f", "--filename", required=True, nargs="+", help="files; - is standard input")
    lint.add_argument("--strict", action="store_true", help="warnings are errors")
    _add_output(lint)
    convert = commands.add_parser("convert", help="turn KServe InferenceServices or Deployments into ModelDeployments")
    convert.add_argument("-f", "--filename", required=True, help="file with any number of objects; - is standard input")
    convert.add_argument(
        "--strict", action="store_true", help="exit with 2 when a field was lost or changed its meaning"
    )
    diff = commands.add_parser("diff", help="say what a file would change, and what follows from it")
    diff.add_argument("-f", "--filename", required=True, help="file with the ModelDeployment; - is standard input")
    _add_output(diff)
    _add_namespace(diff)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="notation")


def _add_render(commands: _Subcommands) -> None:
    parser = commands.add_parser("render", help="print the objects that a ModelDeployment leads to")
    parser.add_argument("-f", "--filename", required=True, help="file with the ModelDeployment; - is standard input")
    parser.add_argument("--candidate", default="", metavar="VERSION", help="as in a rollout of this version")
    parser.add_argument("--weight", type=int, default=0, help="the candidate's weight in per cent (default: 0)")
    parser.add_argument("--runtime-image", default=f"slipway-runtime:{__version__}", help="image of model servers")
    parser.add_argument("--cluster-domain", default="cluster.local", help="DNS domain of the cluster")
    _add_namespace(parser)


def _add_actions(commands: _Subcommands) -> None:
    for name, text in (
        ("promote", "go on from a pause, or past the wait that the rollout is in"),
        ("abort", "give the rollout up and send all traffic back to stable"),
        ("pause", "hold the rollout where it is; harm is still acted on"),
        ("resume", "go on after pause"),
        ("retry", "begin a failed or aborted rollout anew"),
    ):
        parser = _named(commands, name, text)
        if name == "promote":
            parser.add_argument("--full", action="store_true", help="skip the remaining steps")
        parser.add_argument("--reason", default="", help="why, for the record")
        parser.add_argument("--by", default="", help="who asks (default: the user that runs the command)")
        parser.add_argument("--wait", action="store_true", help="wait for the operator's answer")
        parser.add_argument("--timeout", type=seconds_of, default=60.0, help="longest wait (default: 60s)")
        _add_output(parser)


def _named(commands: _Subcommands, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text)
    parser.add_argument("name", metavar="NAME", type=name_of, help="name of the ModelDeployment")
    _add_namespace(parser)
    return parser


def _add_namespace(parser: argparse.ArgumentParser) -> None:
    """Where to may stand after the command as well; unset there, what stood before it is kept."""
    for flags, kind in ((("-n", "--namespace"), namespace_of), (("--kubeconfig",), str)):
        parser.add_argument(*flags, type=kind, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _run(parsed: argparse.Namespace) -> int:
    """Each command loads only what it needs."""
    match parsed.command:
        case "run":
            from slipway.cli.run import run

            return run(parsed)
        case "crd":
            from slipway.api.schema import crd_yaml

            print(crd_yaml(), end="")
            return 0
        case "render":
            from slipway.cli.render import render

            return render(parsed)
        case "simulate":
            from slipway.cli.simulate import simulate

            return simulate(parsed)
        case "status" | "explain" | "history":
            from slipway.cli.show import View, show

            names = ("output", "watch", "prometheus_url")
            given = {name: getattr(parsed, name) for name in names if hasattr(parsed, name)}
            return show(View(parsed.command, parsed.namespace, parsed.name or "", **given))
        case "lint":
            from slipway.cli.lint import lint

            return lint(parsed.filename, output=parsed.output, strict=parsed.strict)
        case "convert":
            from slipway.cli.convert import convert

            return convert(parsed.filename, strict=parsed.strict)
        case "diff":
            from slipway.cli.difference import diff

            return diff(parsed.filename, parsed.namespace, parsed.output)
        case "completion":
            return _completion(parsed.shell)
        case "promote":
            return _act(Verb.PROMOTE_FULL if parsed.full else Verb.PROMOTE, parsed)
        case other:
            return _act(Verb(other.capitalize()), parsed)


def _completion(shell: str) -> int:
    import shtab

    if shell not in shtab.SUPPORTED_SHELLS:
        raise SlipwayError(f"shtab {shtab.__version__} writes no completion for {shell}; a newer release does")
    print(shtab.complete(_parser(["run", "simulate"]), shell))
    return 0


def _act(verb: Verb, parsed: argparse.Namespace) -> int:
    from slipway.cli.act import Request, act

    request = Request(verb, parsed.name, parsed.namespace, by=parsed.by, reason=parsed.reason)
    return act(request, timeout=parsed.timeout if parsed.wait else None, output=parsed.output)
