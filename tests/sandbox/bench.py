"""What the tests of the sandbox work with: a namespace, a client, and conditions to wait for."""

import asyncio
import os
from dataclasses import dataclass

from e2e.sandbox.binaries import helm_path, kubectl_path
from e2e.sandbox.cluster import Sandbox
from e2e.sandbox.controllers import informer, pods
from e2e.sandbox.controllers.client import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    ApiClient,
    ApiError,
)

PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.05


async def eventually(check, seconds=PATIENCE_SECONDS):
    """Wait until `check` returns something true, or until it stops raising AssertionError; returns the result."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        failure = None
        try:
            result = await check()
            if result:
                return result
        except (AssertionError, LookupError, ValueError, ApiError) as error:
            failure = error
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {check.__qualname__}") from failure
        await asyncio.sleep(POLL_SECONDS)


def condition(obj, kind):
    """A condition that must be there."""
    found = pods.condition(obj, kind)
    assert found is not None, f"no condition {kind}"
    return found


def has_controller(obj):
    """Whether some controller calls the object its own."""
    return informer.controller_of(obj) is not None


def controller_of(obj):
    """The controller's owner reference, which must be there."""
    found = informer.controller_of(obj)
    assert found is not None, "no controller"
    return found


def echo(name, replicas=1, version="v1", **container):
    """A Deployment of the echo server."""
    args = ["--version", version, *container.pop("args", ())]
    probe = {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [
                        {
                            "name": "server",
                            "image": "sandbox-echo:1",
                            "args": args,
                            "ports": [{"name": "http", "containerPort": 8080}],
                            "readinessProbe": probe,
                            **container,
                        }
                    ]
                },
            },
        },
    }


def script_pod(name, script, **spec):
    """A pod that runs a shell script once."""
    container = {
        "name": "main",
        "image": "busybox:1",
        "command": ["/bin/sh", "-c", script],
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def service(name):
    """A Service for an echo Deployment of that name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    }


@dataclass
class Bench:
    """A namespace of a sandbox."""

    client: ApiClient
    namespace: str
    sandbox: Sandbox

    async def create(self, resource, obj):
        return await self.client.create(resource, {**obj, "metadata": {**obj["metadata"], "namespace": self.namespace}})

    async def deploy(self, deployment):
        return await self.create(DEPLOYMENTS, deployment)

    async def get(self, resource, name):
        return await self.client.get(resource, self.namespace, name)

    async def patch(self, resource, name, patch):
        return await self.client.merge(resource, await self.get(resource, name), patch)

    async def change_args(self, name, *args):
        """Change the arguments of a Deployment's container."""
        deployment = await self.get(DEPLOYMENTS, name)
        containers = deployment["spec"]["template"]["spec"]["containers"]
        containers[0]["args"] = list(args)
        patch = {"spec": {"template": {"spec": {"containers": containers}}}}
        return await self.client.merge(DEPLOYMENTS, deployment, patch)

    async def items(self, resource, **labels):
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        params = {"labelSelector": selector} if selector else {}
        answer = await self.client.request("GET", resource.path(self.namespace), params=params)
        return answer["items"]

    async def pods(self, app=None):
        return await self.items(PODS, **({"app": app} if app else {}))

    async def ready_pods(self, app, count):
        """Wait for exactly so many pods, all of them ready."""

        async def exactly():
            found = await self.pods(app)
            return len(found) == count and all(pods.is_ready(pod) for pod in found) and found

        async def none():
            return not await self.pods(app)

        return await eventually(exactly if count else none)

    async def rolled_out(self, name):
        """Wait until a Deployment says that it is done."""

        async def done():
            deployment = await self.get(DEPLOYMENTS, name)
            status = deployment["status"]
            progressing = condition(deployment, "Progressing")
            wanted = deployment["spec"]["replicas"]
            return (
                status["observedGeneration"] == deployment["metadata"]["generation"]
                and progressing["reason"] == "NewReplicaSetAvailable"
                and status.get("replicas", 0) == status.get("availableReplicas", 0) == wanted
                and status.get("updatedReplicas", 0) == wanted
                and deployment
            )

        return await eventually(done)

    async def replica_sets(self, app):
        return await self.items(REPLICA_SETS, app=app)

    async def endpoints(self, name):
        """All endpoints of a Service."""
        slices = await self.items(ENDPOINT_SLICES, **{"kubernetes.io/service-name": name})
        return [endpoint for entry in slices for endpoint in entry["endpoints"]]

    async def ready_addresses(self, name):
        return {entry["addresses"][0] for entry in await self.endpoints(name) if entry["conditions"]["ready"]}

    async def waiting_reason(self, name, reason):
        """Wait until the pod's first container waits for that reason; returns the pod."""

        async def waits():
            pod = await self.get(PODS, name)
            return pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == reason and pod

        return await eventually(waits)

    async def phase(self, name, phase):
        """Wait for a pod's phase; returns the pod."""

        async def reached():
            pod = await self.get(PODS, name)
            assert pod["status"]["phase"] == phase, pod["status"]
            return pod

        return await eventually(reached)

    async def expose(self, name):
        return await self.create(SERVICES, service(name))

    async def logs(self, pod, **params):
        """A container's log as text."""
        return await self.client.text(f"{PODS.path(self.namespace, pod)}/log", params)

    async def run(self, program, *args, stdin=None, code=0):
        """Run kubectl or helm in this namespace; returns what it printed."""
        path = {"kubectl": kubectl_path, "helm": helm_path}[program]()
        process = await self.start(path, *args)
        output, _ = await asyncio.wait_for(process.communicate(stdin.encode() if stdin else None), 300)
        assert process.returncode == code, output.decode()
        return output.decode()

    async def kubectl(self, *args, stdin=None, code=0):
        return await self.run("kubectl", *args, stdin=stdin, code=code)

    async def start(self, path, *args):
        """Start a client program in this namespace."""
        home = str(self.sandbox.kubeconfig.parent / "home")
        environment = {"KUBECONFIG": str(self.sandbox.kubeconfig), "HOME": home, "PATH": os.environ["PATH"]}
        return await asyncio.create_subprocess_exec(
            str(path),
            "--namespace",
            self.namespace,
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )
