"""The sandbox's API server with the CRD in it, for tests."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from slipway.api.schema import crd

from e2e.sandbox.apiserver import ApiServer, User

TOKEN = "admin-token"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OBJECTS = "/apis/slipway.dev/v1alpha1/namespaces/default/modeldeployments"


class Api:
    """Requests to the server as an admin."""

    def __init__(self, server: ApiServer, session: aiohttp.ClientSession) -> None:
        self._server = server
        self._session = session

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {TOKEN}", **options.pop("headers", {})}
        url = self._server.url + path
        async with self._session.request(method, url, json=body, headers=headers, **options) as response:
            return response.status, await response.json()

    async def create(self, obj: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return await self.call("POST", OBJECTS, obj)

    def write_kubeconfig(self, path: Path) -> None:
        """A kubeconfig for the server, in namespace default."""
        path.write_text(f"""
apiVersion: v1
kind: Config
current-context: sandbox
contexts: [{{name: sandbox, context: {{cluster: sandbox, user: admin, namespace: default}}}}]
clusters:
- name: sandbox
  cluster: {{server: "{self._server.url}", certificate-authority: "{self._server.ca_file}"}}
users: [{{name: admin, user: {{token: {TOKEN}}}}}]
""")


@asynccontextmanager
async def serving_api() -> AsyncIterator[Api]:
    """The server, once it serves ModelDeployments."""
    server = ApiServer(tokens={TOKEN: User("admin", groups=("system:masters",))})
    await server.start()
    try:
        tls = ssl.create_default_context(cafile=str(server.ca_file))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
            made = Api(server, session)
            code, body = await made.call("POST", CRDS, crd())
            assert code == 201, body
            async with asyncio.timeout(60):
                while (await made.call("GET", OBJECTS))[0] != 200:  # noqa: ASYNC110 - only asking tells
                    await asyncio.sleep(0.01)
            yield made
    finally:
        await server.stop()
