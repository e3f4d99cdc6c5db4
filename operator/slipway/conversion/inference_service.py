"""A KServe InferenceService (serving.kserve.io/v1beta1) as a ModelDeployment."""

from typing import Any

from slipway.conversion.huggingface import named_model
from slipway.conversion.ledger import Ledger, NotConvertibleError
from slipway.conversion.metadata import convert_metadata, own_annotations
from slipway.conversion.pods import SERVER, convert_container, convert_pod
from slipway.conversion.replicas import convert_component_scaling
from slipway.conversion.servers import KSERVE_CONTAINER, NAMED_SERVERS, Server, choose_server
from slipway.conversion.storage import convert_storage, own_artefact

__all__ = ["convert_inference_service"]

PREDICTOR = ("spec", "predictor")
_AGENT = "Slipway serves one model: run it as a Deployment of its own, or as a Python handler of the model's folder"


def convert_inference_service(ledger: Ledger) -> None:
    """Fill the ledger; raises NotConvertibleError where no ModelDeployment can come of it."""
    convert_metadata(ledger)
    for component in ("transformer", "explainer"):
        if ledger.get("spec", component) is not None:
            ledger.dropped(_AGENT, "spec", component)
    if ledger.get("spec", "canary") is not None:
        ledger.dropped("add its model as a further entry of spec.versions and name it in spec.serve", "spec", "canary")
    model = _model_path(ledger)
    server = choose_server(ledger, model)
    uri = _uri(ledger, model, server)
    version: dict[str, Any] = {"name": "v1", **({"uri": uri} if uri else {})}
    if server.format:
        version["format"] = server.format
    ledger.set("spec.versions", [version])
    if server.engine != "slipway":
        ledger.set("spec.runtime.engine", server.engine)
    convert_pod(ledger, PREDICTOR)
    overlay = convert_container(ledger, model, server.engine)
    _extensions(ledger, model)
    containers = [*([{"name": SERVER, **overlay}] if overlay else []), *_sidecars(ledger, model)]
    if containers:
        ledger.set("spec.runtime.podTemplate.spec.containers", containers)
    for field in ("labels", "annotations"):
        if ledger.table(*PREDICTOR, field):
            ledger.move(f"spec.runtime.podTemplate.metadata.{field}", *PREDICTOR, field)
    own_annotations(ledger, PREDICTOR)
    convert_component_scaling(ledger, PREDICTOR)
    _limits(ledger)
    _canary(ledger)
    _strategy(ledger)


def _model_path(ledger: Ledger) -> tuple[str | int, ...]:
    """Where the model server is described: ``model``, the old form by framework, or a container."""
    predictor = ledger.table(*PREDICTOR)
    named = [name for name in ("model", *NAMED_SERVERS) if isinstance(predictor.get(name), dict)]
    if len(named) > 1:
        raise NotConvertibleError(f"predictor has several servers: {', '.join(named)}")
    if named:
        return (*PREDICTOR, named[0])
    containers = ledger.items(*PREDICTOR, "containers")
    for number, container in enumerate(containers):
        if isinstance(container, dict) and container.get("name") == KSERVE_CONTAINER:
            return (*PREDICTOR, "containers", number)
    if containers:
        return (*PREDICTOR, "containers", 0)
    raise NotConvertibleError("predictor has no model and no container")


def _uri(ledger: Ledger, model: tuple[str | int, ...], server: Server) -> str:
    try:
        return convert_storage(ledger, PREDICTOR, model)
    except NotConvertibleError:
        named = named_model(ledger, model) if server.engine == "vllm" else ""
        if ledger.get(*model, "storageUri") is not None or not (named or server.own_image):
            raise
        if named:
            return named
    own_artefact(ledger, model)
    return ""


def _extensions(ledger: Ledger, model: tuple[str | int, ...]) -> None:
    """What a model has beside its container."""
    protocol = ledger.text(*model, "protocolVersion")
    if protocol in ("v2", "grpc-v2"):
        ledger.unneeded("the Open Inference Protocol is what Slipway's servers speak", *model, "protocolVersion")
    elif protocol:
        ledger.dropped("clients have to use the Open Inference Protocol (v2)", *model, "protocolVersion")
    for field, message in (
        ("runtimeVersion", "the version of another server"),
        ("runtime", "names one of KServe's runtimes; spec.runtime.engine is chosen by it"),
    ):
        if ledger.get(*model, field) is not None:
            ledger.dropped(message, *model, field)
    if ledger.get(*model, "modelFormat", "version") is not None:
        ledger.unneeded("servers look into the file", *model, "modelFormat", "version")


def _sidecars(ledger: Ledger, model: tuple[str | int, ...]) -> list[Any]:
    """Containers beside the server go into the pod as they are."""
    beside = []
    for number, container in enumerate(ledger.items(*PREDICTOR, "containers")):
        path = (*PREDICTOR, "containers", number)
        if path == model or not isinstance(container, dict) or not isinstance(container.get("name"), str):
            continue
        if container["name"] in (KSERVE_CONTAINER, SERVER):
            ledger.dropped("changes the container of another server", *path)
        else:
            ledger.settle(*path)
            ledger.partly("runs in the pod, but requests go straight to the model server", *path)
            beside.append(container)
    return beside


def _limits(ledger: Ledger) -> None:
    seconds = ledger.whole(*PREDICTOR, "timeout")
    if seconds is not None:
        ledger.derive("spec.traffic.resilience.timeout", f"{seconds}s", *PREDICTOR, "timeout")
        ledger.place("spec.runtime.limits.timeout", f"{seconds}s", *PREDICTOR, "timeout")
    most = ledger.whole(*PREDICTOR, "containerConcurrency")
    if most is not None:
        ledger.place("spec.runtime.limits.maxConcurrency", most, *PREDICTOR, "containerConcurrency")
        if most:
            ledger.partly("requests beyond it are answered 429; Knative lets them wait", *PREDICTOR,
                          "containerConcurrency")  # fmt: skip
    size, delay = ledger.whole(*PREDICTOR, "batcher", "maxBatchSize"), ledger.whole(*PREDICTOR, "batcher", "maxLatency")
    if size is not None:
        ledger.place("spec.runtime.batching.maxSize", size, *PREDICTOR, "batcher", "maxBatchSize")
    if delay is not None:
        ledger.place("spec.runtime.batching.maxDelay", f"{delay}ms", *PREDICTOR, "batcher", "maxLatency")
    if ledger.get(*PREDICTOR, "batcher", "timeout") is not None:
        ledger.dropped("spec.runtime.limits.timeout holds for all requests", *PREDICTOR, "batcher", "timeout")
    for field, message in (
        ("logger", "Slipway does not log payloads"),
        ("workerSpec", "a model server of several nodes is not something Slipway runs"),
        ("name", "names the canary's or stable's predictor"),
    ):
        if ledger.get(*PREDICTOR, field) is not None:
            ledger.dropped(message, *PREDICTOR, field)


def _canary(ledger: Ledger) -> None:
    percent = ledger.whole(*PREDICTOR, "canaryTrafficPercent")
    if percent is None:
        return
    path = (*PREDICTOR, "canaryTrafficPercent")
    if percent in (0, 100):
        ledger.dropped("say in spec.serve which version of spec.versions is wanted", *path)
        return
    ledger.place("spec.rollout.steps", [{"weight": percent, "pause": {}}], *path)
    ledger.partly(
        "a step of this weight that waits for a promotion. The model that the other traffic goes to is not in the "
        "file: add it to spec.versions and serve it first", *path,
    )  # fmt: skip


def _strategy(ledger: Ledger) -> None:
    if ledger.get(*PREDICTOR, "deploymentStrategy") is None:
        return
    if ledger.text(*PREDICTOR, "deploymentStrategy", "type") == "Recreate":
        ledger.place("spec.rollout.strategy", "Recreate", *PREDICTOR, "deploymentStrategy", "type")
    else:
        ledger.dropped("spec.rollout says how versions follow each other; spec.rollout.maxSurgeGPUs: 0 uses no spare "
                       "GPU", *PREDICTOR, "deploymentStrategy")  # fmt: skip
