"""``slipway run`` that is killed after its n-th write: ``python -m e2e.faults.victim N FLAGS...``.

Everything is as in ``slipway run`` but the transport, which sends SIGKILL to its own process once the API server has
done the n-th write. Renewals of the lease and Events are not counted.
"""

import argparse
import asyncio
import os
import signal
import sys

from slipway.app import operate
from slipway.cli.run import add_arguments, settings_of
from slipway.engine.logs import set_up
from slipway.kube.transport import Answer, Call, Transport

__all__ = ["main"]


class _Deadly:
    """A transport that ends the process."""

    def __init__(self, inner: Transport, writes: int) -> None:
        self._inner = inner
        self._left = writes

    async def send(self, call: Call) -> Answer:
        """Carry a call, perhaps the last one."""
        answer = await self._inner.send(call)
        if call.method != "GET" and "/leases" not in call.path and "/events" not in call.path:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return answer

    async def close(self) -> None:
        """Give connections back."""
        await self._inner.close()


def main() -> int:
    """Run until killed."""
    writes = int(sys.argv[1])
    parser = argparse.ArgumentParser(prog="python -m e2e.faults.victim N")
    add_arguments(parser)
    arguments = parser.parse_args(sys.argv[2:])
    set_up(arguments.log_format, 20)
    asyncio.run(operate(settings_of(arguments), wrap=lambda transport: _Deadly(transport, writes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
