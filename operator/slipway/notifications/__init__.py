"""News of rollouts and scaling for people and pipelines outside the cluster: CloudEvents and chat messages.

News is derived from what status says before and after a reconcile, so that its identity survives restarts. Sending
happens in the background: it never delays a reconcile, and a receiver that is away costs memory for a bounded queue.
"""

from slipway.notifications.notifier import Notifier
from slipway.notifications.receivers import Receiver, receivers_of

__all__ = ["Notifier", "Receiver", "receivers_of"]
