"""The release of Kubernetes this server stands in for; clients choose features by it."""

from __future__ import annotations

VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "$Format:%H$",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.27.3",
    "compiler": "gc",
    "platform": "linux/amd64",
}
# The one place where a client is told that it talks to a simulation.
SERVER_HEADER = "slipway-sandbox-apiserver (simulated)"
