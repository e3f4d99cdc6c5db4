"""One container's life: prepare, start, probe, end, restart with back-off, stop gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import aiohttp

from e2e.sandbox.controllers.client import CONNECTION_ERRORS, ApiClient, ApiError, Obj
from e2e.sandbox.controllers.events import EventRecorder
from e2e.sandbox.controllers.quantities import parse_quantity
from e2e.sandbox.controllers.times import now

from . import probes
from .errors import ContainerConfigError
from .launch import Launch, prepare_launch
from .logs import LogFile, last_text
from .pod_context import PodContext
from .process import LocalProcess, run_to_end
from .states import ContainerView, Role, Running, State, Terminated, Waiting

log = logging.getLogger(__name__)

MESSAGE_BYTES = 4096
FALLBACK_LINES = 80
FALLBACK_BYTES = 2048
CONFIG_RETRY_SECONDS = 1.0
LEAST_GRACE_SECONDS = 2.0


class Container:
    """Runs one container of a pod until it has ended for good or is stopped."""

    def __init__(
        self,
        context: PodContext,
        spec: Obj,
        role: Role,
        *,
        client: ApiClient,
        events: EventRecorder,
        http: aiohttp.ClientSession,
        restarts: int,
    ) -> None:
        self.spec = spec
        self.role = role
        self.restarts = restarts
        self.state: State = Waiting("PodInitializing" if role is Role.MAIN else "ContainerCreating")
        self.last: Terminated | None = None
        self.ready = False
        self.started = asyncio.Event()
        self.finished = asyncio.Event()
        self.begun = False
        self._context = context
        self._client = client
        self._events = events
        self._http = http
        self._stopping = asyncio.Event()
        self._process: LocalProcess | None = None
        self._launch: Launch | None = None
        self._kill_reason = ""
        self._failures = 0
        self._folder = context.folder / "containers" / str(spec["name"])
        self._container_id = ""

    @property
    def name(self) -> str:
        """The container's name."""
        return str(self.spec["name"])

    @property
    def pid(self) -> int | None:
        """The process id while running."""
        return self._process.pid if self._process is not None else None

    def log_path(self, *, previous: bool = False) -> Path | None:
        """The log of the current or the previous run, or None when there is none."""
        wanted = self.restarts - 1 if previous else self.restarts
        if not previous and not self._log_file(wanted).exists():
            wanted -= 1
        path = self._log_file(wanted)
        return path if path.exists() else None

    def _log_file(self, run: int) -> Path:
        return self._folder / f"{run}.log"

    def view(self) -> ContainerView:
        """The state at this moment."""
        done = self.role is Role.INIT and isinstance(self.state, Terminated) and self.state.exit_code == 0
        return ContainerView(
            name=self.name,
            image=self.spec["image"],
            role=self.role,
            state=self.state,
            last=self.last,
            restarts=self.restarts,
            ready=self.ready or done,
            started=self.started.is_set() and isinstance(self.state, Running),
            container_id=self._container_id,
        )

    def _set(self, state: State) -> None:
        self.state = state
        if not isinstance(state, Running):
            self.ready = False
            self.started.clear()
        self._context.changed()

    def _note(self, kind: str, reason: str, message: str) -> None:
        tell = self._events.normal if kind == "Normal" else self._events.warning
        section = "containers" if self.role is Role.MAIN else "initContainers"
        tell(self._context.pod, reason, message, f"spec.{section}{{{self.name}}}")

    async def _pause(self, seconds: float) -> bool:
        """Wait; returns True when the container is to stop."""
        if seconds <= 0:
            return self._stopping.is_set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

    def begin(self) -> asyncio.Task[None]:
        """Start the container's life as a task."""
        self.begun = True
        return asyncio.create_task(self._run(), name=f"container {self.name}")

    async def _run(self) -> None:
        """Live until there is nothing more to run."""
        try:
            while True:
                launch = await self._prepare()
                if launch is None or await self._pause(self._context.settings.start_delay):
                    return
                ended = await self._run_once(launch)
                if self._stopping.is_set() or not self._restarts_after(ended):
                    self._set(ended)
                    return
                self._set(ended)
                if await self._back_off(ended):
                    return
        finally:
            if isinstance(self.state, Running):
                self._set(self._terminated(137, self.state.since, "Error"))
            self.finished.set()
            self._context.changed()

    def _restarts_after(self, ended: Terminated) -> bool:
        policy = self._context.pod["spec"].get("restartPolicy", "Always")
        if self.role is Role.SIDECAR:
            return True
        if self.role is Role.INIT:
            return ended.exit_code != 0 and policy != "Never"
        return policy == "Always" or (policy == "OnFailure" and ended.exit_code != 0)

    async def _back_off(self, ended: Terminated) -> bool:
        """Wait before the next start, the first time not at all; returns True when the container is to stop."""
        settings = self._context.settings
        if (ended.finished - ended.started).total_seconds() > 2 * settings.restart_backoff_cap:
            self._failures = 0
        self._failures += 1
        seconds = 0.0
        if self._failures > 1:
            seconds = min(settings.restart_backoff * 2 ** (self._failures - 2), settings.restart_backoff_cap)
        self.last = ended
        if seconds:
            where = f"{self._context.pod['metadata']['name']}_{self._context.pod['metadata']['namespace']}"
            message = f"back-off {seconds:g}s restarting failed container={self.name} pod={where}"
            self._set(Waiting("CrashLoopBackOff", message))
            self._note("Warning", "BackOff", f"Back-off restarting failed container {self.name} in pod {where}")
        if await self._pause(seconds):
            self._set(ended)
            return True
        self.restarts += 1
        return False

    async def _prepare(self) -> Launch | None:
        """Everything needed for a start; None when the container is to stop first."""
        pull_failures = 0
        while not self._stopping.is_set():
            image = self._context.settings.images.find(self.spec["image"])
            if image is None:
                pull_failures += 1
                await self._refuse_image(pull_failures)
                continue
            try:
                return await prepare_launch(self._client, self._context, self.spec, image, self._folder)
            except ContainerConfigError as error:
                self._set(Waiting("CreateContainerConfigError", str(error)))
                self._note("Warning", "Failed", f"Error: {error}")
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.info("%s: %s", self.name, error)
            await self._pause(CONFIG_RETRY_SECONDS)
        return None

    async def _refuse_image(self, failures: int) -> None:
        reference = self.spec["image"]
        message = f'failed to pull image "{reference}": the sandbox has no program for this image'
        if failures == 1:
            self._note("Warning", "Failed", f'Failed to pull image "{reference}": {message}')
            self._set(Waiting("ErrImagePull", message))
        else:
            text = f'Back-off pulling image "{reference}": ErrImagePull: {message}'
            self._set(Waiting("ImagePullBackOff", text))
            self._note("Warning", "BackOff", text)
        settings = self._context.settings
        await self._pause(min(settings.restart_backoff * 2 ** (failures - 1), settings.restart_backoff_cap))

    async def _run_once(self, launch: Launch) -> Terminated:
        """Start the process and see it to its end."""
        self._launch = launch
        self._kill_reason = ""
        self._container_id = f"sandbox://{uuid.uuid4().hex}"
        log_file = LogFile(self._log_file(self.restarts))
        began = now()
        try:
            try:
                process = await LocalProcess.start(launch.argv, launch.env, launch.folder, log_file.write)
            except OSError as error:
                self._note("Warning", "Failed", f"Error: {error}")
                return self._terminated(128, began, "StartError", f"failed to start {launch.argv[0]}: {error}")
            self._process = process
            if self._stopping.is_set():
                # The order to stop came between the decision to start and the start.
                process.signal(signal.SIGKILL)
            self._set(Running(now(), self._container_id))
            self._note("Normal", "Started", f"Container started: {self.name}")
            watchers = asyncio.create_task(self._watch(process))
            try:
                code = await process.wait()
            finally:
                process.signal(signal.SIGKILL)
                watchers.cancel()
                self._process = None
            (outcome,) = await asyncio.gather(watchers, return_exceptions=True)
            if isinstance(outcome, Exception):
                log.error("watching container %s failed", self.name, exc_info=outcome)
        finally:
            log_file.close()
        reason = self._kill_reason or ("Completed" if code == 0 else "Error")
        return self._terminated(code, began, reason)

    def _terminated(self, code: int, began: datetime, reason: str, message: str = "") -> Terminated:
        return Terminated(code, reason, message or self._message(code), began, now(), self._container_id)

    def _message(self, code: int) -> str:
        if self._launch is None:
            return ""
        with contextlib.suppress(OSError):
            text = self._launch.message_file.read_bytes()[:MESSAGE_BYTES].decode("utf-8", "replace")
            if text or code == 0 or self.spec.get("terminationMessagePolicy") != "FallbackToLogsOnError":
                return text
            return last_text(self._log_file(self.restarts), FALLBACK_LINES, FALLBACK_BYTES)
        return ""

    async def _watch(self, process: LocalProcess) -> None:
        """Everything that goes on beside the running process."""
        async with asyncio.TaskGroup() as group:
            limit = ((self.spec.get("resources") or {}).get("limits") or {}).get("memory")
            if limit:
                group.create_task(self._watch_memory(process, int(parse_quantity(limit))))
            hook = (self.spec.get("lifecycle") or {}).get("postStart")
            if hook:
                good, output = await probes.check({**hook, "timeoutSeconds": 30}, self._target())
                if not good:
                    self._note("Warning", "FailedPostStartHook", output)
                    self._restart(process)
            if self.spec.get("startupProbe") and not await self._started_up(group, process):
                return
            self.started.set()
            self._watch_health(group, process)
            self._context.changed()

    async def _started_up(self, group: asyncio.TaskGroup, process: LocalProcess) -> bool:
        result: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def report(good: bool, output: str) -> None:
            if not result.done():
                result.set_result(good)

        probe = self.spec["startupProbe"]
        task = group.create_task(probes.watch_probe(probe, self._target(), report, self._unhealthy("Startup"), None))
        good = await result
        task.cancel()
        if not good and not self._stopping.is_set():
            self._note("Normal", "Killing", f"Container {self.name} failed startup probe, will be restarted")
            self._restart(process)
        return good

    def _watch_health(self, group: asyncio.TaskGroup, process: LocalProcess) -> None:
        readiness, liveness = self.spec.get("readinessProbe"), self.spec.get("livenessProbe")
        if readiness:
            group.create_task(
                probes.watch_probe(readiness, self._target(), self._set_ready, self._unhealthy("Readiness"), False)
            )
        else:
            self.ready = True

        def dead(good: bool, output: str) -> None:
            if not good and not self._stopping.is_set():
                self._note("Normal", "Killing", f"Container {self.name} failed liveness probe, will be restarted")
                self._restart(process)

        if liveness:
            group.create_task(probes.watch_probe(liveness, self._target(), dead, self._unhealthy("Liveness"), True))

    def _unhealthy(self, kind: str) -> Callable[[str], None]:
        def failed(output: str) -> None:
            if not self._stopping.is_set():
                self._note("Warning", "Unhealthy", f"{kind} probe failed: {output}")

        return failed

    def _set_ready(self, good: bool, output: str) -> None:
        self.ready = good
        self._context.changed()

    async def _watch_memory(self, process: LocalProcess, limit: int) -> None:
        while True:
            await asyncio.sleep(self._context.settings.memory_poll)
            if process.memory_bytes() > limit:
                self._kill_reason = "OOMKilled"
                process.signal(signal.SIGKILL)
                return

    def _target(self) -> probes.ProbeTarget:
        ports = {
            entry["name"]: int(entry["containerPort"]) for entry in self.spec.get("ports") or () if entry.get("name")
        }
        return probes.ProbeTarget(self._context.address, ports, self._http, self._exec)

    async def _exec(self, command: Sequence[str], seconds: float) -> tuple[int, str]:
        launch = self._launch
        if launch is None:
            return 126, "the container is not running"
        words = [launch.mounts.rewrite(word) for word in command]
        return await run_to_end(words, launch.env, launch.folder, seconds)

    def _restart(self, process: LocalProcess) -> None:
        """Let a failing container end by itself within the grace period, without waiting for it."""
        grace = float(self._context.pod["spec"].get("terminationGracePeriodSeconds") or 30)
        self._context.background(self._terminate(process, grace))

    async def _terminate(self, process: LocalProcess, grace: float) -> None:
        """preStop, SIGTERM, SIGKILL, all within `grace` seconds (SIGTERM gets two in any case)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace > 0:
            try:
                async with asyncio.timeout(grace):
                    good, output = await probes.check({**hook, "timeoutSeconds": grace}, self._target())
                if not good:
                    self._note("Warning", "FailedPreStopHook", output)
            except TimeoutError:
                self._note("Warning", "FailedPreStopHook", "the hook took longer than the grace period")
        process.signal(signal.SIGTERM)
        left = max(deadline - loop.time(), LEAST_GRACE_SECONDS if grace > 0 else 0.0)
        kill = loop.call_later(left, process.signal, signal.SIGKILL)
        try:
            await process.ended.wait()
        finally:
            kill.cancel()

    async def stop(self, grace: float) -> None:
        """Stop for good; returns when the container has ended."""
        self._stopping.set()
        process = self._process
        if process is not None:
            self._note("Normal", "Killing", f"Stopping container {self.name}")
            await self._terminate(process, grace)
        await self.finished.wait()

    def kill(self) -> None:
        """End at once."""
        self._stopping.set()
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
