"""Whether a server may be several processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from slipway_runtime.processes.supervisor import Supervisor, supervise
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.settings import Device, ServeSettings


def checked(settings: ServeSettings) -> ServeSettings:
    """The settings of each worker. Raises Refusal for what several processes cannot do together."""
    if settings.processes == 1:
        return settings
    devices = {settings.template.device, *(model.device for model in settings.models)}
    problem = ""
    if Device.CUDA in devices or settings.template.cuda_devices:
        problem = "a GPU is used by one process: use --instances and --cuda-devices instead"
    elif settings.repository.lasting:
        problem = "models cannot be loaded or unloaded in all of them at once"
    if problem:
        raise Refusal("BadArguments", f"--processes {settings.processes}: {problem}", ExitCode.BAD_ARGUMENTS)
    # Where there is a GPU, `auto` would mean it.
    models = tuple(replace(model, device=Device.CPU) for model in settings.models)
    count = settings.processes
    return replace(
        settings,
        models=models,
        template=replace(settings.template, device=Device.CPU),
        # Every worker keeps its part of what is said of the server.
        limits=replace(
            settings.limits,
            cache_bytes=settings.limits.cache_bytes // count,
            max_inflight_bytes=math.ceil(settings.limits.max_inflight_bytes / count),
        ),
        tenants=None if settings.tenants is None else settings.tenants.shared_by(count),
    )


def run_supervised(words: Sequence[str], settings: ServeSettings) -> int:
    """Run the command line ``words`` in so many processes; gives the exit code. Raises Refusal."""
    where = settings.listener
    ports = {"--http-port": where.http_port, "--grpc-port": where.grpc_port}
    return supervise(Supervisor(words, settings.processes, ports, where.host, where.grace + where.pre_stop))
