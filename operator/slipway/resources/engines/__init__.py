"""The model servers that pods can run: what each wants of its pod, as one value per engine."""

from slipway.resources.engines.presets import default_image, preset_of
from slipway.resources.engines.server import Server, http_port

__all__ = ["Server", "default_image", "http_port", "preset_of"]
