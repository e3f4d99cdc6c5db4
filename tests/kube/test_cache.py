import json
import random
from typing import Any

from slipway.kube.cache import Cache, trimmed
from slipway.kube.client import Listing
from slipway.kube.kinds import DEPLOYMENT, MODEL_DEPLOYMENT, POD, VIRTUAL_SERVICE
from slipway.kube.metadata import Key, foreign_manager, resource_version

OWNER = Key("ns", "m")


def deployment(name="d", version=1, uid="u1", owner="m", **fields):
    labels = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/model-deployment": owner} if owner else {}
    metadata = {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(version), "labels": labels}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, **fields}


def known_version(cache, name="d"):
    found = cache.get(DEPLOYMENT, Key("ns", name))
    return found and resource_version(found)


def test_an_older_copy_never_replaces_a_newer_one():
    cache = Cache()
    assert cache.put(DEPLOYMENT, deployment(version=9))
    assert not cache.put(DEPLOYMENT, deployment(version=10**0))
    assert not cache.put(DEPLOYMENT, deployment(version=9))
    assert cache.put(DEPLOYMENT, deployment(version=10))
    assert known_version(cache) == "10"


def test_versions_compare_as_numbers():
    cache = Cache()
    cache.put(DEPLOYMENT, deployment(version=99))
    assert cache.put(DEPLOYMENT, deployment(version=100))


def test_an_incomparable_version_is_taken():
    cache = Cache()
    cache.put(DEPLOYMENT, deployment(version=99))
    assert cache.put(DEPLOYMENT, deployment(version="abc"))


def test_a_deletion_holds_against_a_late_copy_but_not_against_a_new_object():
    cache = Cache()
    cache.put(DEPLOYMENT, deployment(version=5))
    assert cache.remove(DEPLOYMENT, deployment(version=8))
    assert not cache.put(DEPLOYMENT, deployment(version=7))
    assert cache.put(DEPLOYMENT, deployment(version=9, uid="u2"))


def test_a_late_deletion_of_a_former_object_is_nothing():
    cache = Cache()
    cache.put(DEPLOYMENT, deployment(version=9, uid="u2"))
    assert not cache.remove(DEPLOYMENT, deployment(version=8, uid="u1"))
    assert known_version(cache) == "9"


def test_an_object_whose_label_comes_back_is_known_again():
    cache = Cache()
    cache.put(DEPLOYMENT, deployment(version=5))
    cache.remove(DEPLOYMENT, deployment(version=6))
    assert cache.put(DEPLOYMENT, deployment(version=7))


def test_a_list_replaces_and_names_the_owners_of_what_differed():
    cache = Cache()
    cache.put(DEPLOYMENT, deployment("same", 1, "u1", owner="a"))
    cache.put(DEPLOYMENT, deployment("gone", 2, "u2", owner="b"))
    cache.put(DEPLOYMENT, deployment("changed", 3, "u3", owner="c"))
    listing = Listing(
        (deployment("same", 1, "u1", owner="a"), deployment("changed", 7, "u3", owner="c")), resource_version="8"
    )
    assert cache.replace(DEPLOYMENT, listing) == {Key("ns", "b"), Key("ns", "c")}
    assert known_version(cache, "gone") is None


def test_a_list_that_a_watch_has_overtaken_undoes_nothing():
    cache = Cache()
    cache.put(DEPLOYMENT, deployment("born", 12, "u1"))
    cache.put(DEPLOYMENT, deployment("changed", 13, "u2"))
    cache.put(DEPLOYMENT, deployment("dead", 2, "u3"))
    cache.remove(DEPLOYMENT, deployment("dead", 14, "u3"))
    listing = Listing((deployment("changed", 3, "u2"), deployment("dead", 2, "u3")), resource_version="10")
    assert cache.replace(DEPLOYMENT, listing) == set()
    assert known_version(cache, "born") == "12"
    assert known_version(cache, "changed") == "13"
    assert known_version(cache, "dead") is None


def test_starting_over_believes_the_list_alone():
    cache = Cache()
    cache.put(DEPLOYMENT, deployment("ghost", 70, "u7"))
    cache.put(DEPLOYMENT, deployment("d", 80, "u1"))
    cache.remove(DEPLOYMENT, deployment("back", 90, "u9"))
    assert cache.newest(DEPLOYMENT) == "90"
    listing = Listing((deployment("d", 50, "u1"), deployment("back", 40, "u9", owner="other")), "60")
    assert cache.start_over(DEPLOYMENT, listing) == {OWNER, Key("ns", "other")}
    assert (known_version(cache), known_version(cache, "back"), known_version(cache, "ghost")) == ("50", "40", None)
    assert cache.newest(DEPLOYMENT) == "50"


def test_a_list_of_one_namespace_leaves_the_others_alone():
    cache = Cache()
    cache.put(DEPLOYMENT, deployment("d", 1))
    cache.replace(DEPLOYMENT, Listing((), "5"), covers=lambda key: key.namespace == "elsewhere")
    assert known_version(cache) == "1"


def test_any_order_of_events_and_lists_ends_alike():
    random.seed(7)
    for _ in range(200):
        history, cache = [], Cache()
        for version in range(1, 9):
            uid = f"u{version // 4}"
            history.append(("DELETED" if version % 4 == 3 else "MODIFIED", deployment(version=version, uid=uid)))
        random.shuffle(history)
        for change, obj in history:
            (cache.remove if change == "DELETED" else cache.put)(DEPLOYMENT, obj)
        assert known_version(cache) == "8"


def test_owners_are_indexed_and_follow_the_labels():
    cache = Cache()
    cache.put(DEPLOYMENT, deployment("b", 1, "u1"))
    cache.put(DEPLOYMENT, deployment("a", 2, "u2"))
    assert [obj["metadata"]["name"] for obj in cache.owned(DEPLOYMENT, OWNER)] == ["a", "b"]
    cache.put(DEPLOYMENT, deployment("a", 3, "u2", owner=""))
    assert [obj["metadata"]["name"] for obj in cache.owned(DEPLOYMENT, OWNER)] == ["b"]


def virtual_service(namespace, name, hosts, version):
    metadata = {"namespace": namespace, "name": name, "uid": f"{namespace}{name}", "resourceVersion": str(version)}
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": metadata,
        "spec": {"hosts": hosts},
    }


def test_hosts_are_indexed_with_short_names_made_full():
    cache = Cache()
    cache.put(VIRTUAL_SERVICE, virtual_service("ns", "short", ["m"], 1))
    cache.put(VIRTUAL_SERVICE, virtual_service("other", "full", ["m.ns.svc.cluster.local", "a.example"], 2))
    names = [obj["metadata"]["name"] for obj in cache.claiming("m", "ns")]
    assert names == ["short", "full"]
    cache.put(VIRTUAL_SERVICE, virtual_service("other", "full", ["b.example"], 3))
    for domain in ("cluster.local", "k8s.example"):
        assert [obj["metadata"]["name"] for obj in cache.claiming(f"m.ns.svc.{domain}", "x")] == ["short"]
    assert cache.claiming("a.example", "x") == []


def test_a_kind_that_is_not_served_is_noted_until_it_is():
    cache = Cache()
    cache.put(MODEL_DEPLOYMENT, deployment(owner=""))
    assert cache.unserved(MODEL_DEPLOYMENT) == {Key("ns", "d")}
    assert not cache.served(MODEL_DEPLOYMENT)
    cache.replace(MODEL_DEPLOYMENT, Listing((), "1"))
    assert cache.served(MODEL_DEPLOYMENT)


def test_trimming_keeps_who_wrote_when():
    managed: list[dict[str, Any]] = [
        {"manager": "slipway", "operation": "Apply", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {}}},
        {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": {}},
        {"manager": "controller", "operation": "Update", "time": "2026-01-03T00:00:00Z", "subresource": "status"},
    ]
    obj = deployment()
    obj["metadata"]["managedFields"] = managed
    copy = trimmed(DEPLOYMENT, obj)
    assert [sorted(entry) for entry in copy["metadata"]["managedFields"]] == [["manager", "operation", "time"]]
    assert foreign_manager(copy, "slipway") == "kubectl-edit"
    assert managed[0]["fieldsV1"] == {"f:spec": {}}


def test_what_only_we_wrote_keeps_no_managed_fields():
    obj = deployment()
    obj["metadata"]["managedFields"] = [{"manager": "slipway", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]
    assert "managedFields" not in trimmed(DEPLOYMENT, obj)["metadata"]
    assert trimmed(DEPLOYMENT, trimmed(DEPLOYMENT, obj)) == trimmed(DEPLOYMENT, obj)


def test_of_a_list_what_is_known_is_not_held_twice():
    cache, newer = Cache(), deployment(version="8")
    cache.put(DEPLOYMENT, deployment(version="7"))
    known = cache.get(DEPLOYMENT, Key("ns", "d"))
    assert cache.reduced(DEPLOYMENT, deployment(version="7")) is known
    assert cache.reduced(DEPLOYMENT, newer) == trimmed(DEPLOYMENT, newer)
    other = deployment(version="7")
    other["metadata"]["uid"] = "another"
    assert cache.reduced(DEPLOYMENT, other) == other


def test_who_scales_an_object_is_its_foreign_manager():
    managed = [
        {"manager": "kube-controller-manager", "operation": "Update", "time": "2026-01-01T00:00:00Z"},
        {"manager": "kubectl", "operation": "Update", "time": "2026-01-02T00:00:00Z", "subresource": "scale"},
        {"manager": "kubelet", "operation": "Update", "time": "2026-01-03T00:00:00Z", "subresource": "status"},
    ]
    assert foreign_manager({"metadata": {"managedFields": managed}}, "slipway") == "kubectl"


def test_trimming_a_pod_keeps_node_and_resources():
    pod = deployment() | {"kind": "Pod", "apiVersion": "v1"}
    pod["spec"] = {
        "nodeName": "n",
        "volumes": [1],
        "containers": [{"name": "server", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    }
    assert trimmed(POD, pod)["spec"] == {
        "nodeName": "n",
        "containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    }


def test_equal_parts_are_held_once():
    cache = Cache()

    def kept(name: str, replicas: int):
        spec = {"replicas": replicas, "template": {"someField": ["a short value", "x" * 99]}}
        text = json.dumps({"metadata": {"namespace": "ns", "name": name, "resourceVersion": "1"}, "spec": spec})
        cache.put(DEPLOYMENT, json.loads(text))
        return cache.get(DEPLOYMENT, Key("ns", name))

    one, two = kept("a", 1), kept("b", 2)
    assert one["spec"] == {"replicas": 1, "template": {"someField": ["a short value", "x" * 99]}}
    assert two["spec"]["replicas"] == 2
    assert one["spec"]["template"] is two["spec"]["template"]
