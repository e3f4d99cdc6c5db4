"""Other people's manifests as ModelDeployments, and an account of every field on the way. Pure: no files, no cluster.

``convert`` takes the documents of a file. KServe's InferenceServices become ModelDeployments one by one; a Deployment
does together with the HorizontalPodAutoscaler and the Services that belong to it.
"""

from slipway.conversion.documents import Conversion, Converted, convert
from slipway.conversion.ledger import Finding, Severity

__all__ = ["Conversion", "Converted", "Finding", "Severity", "convert"]
