from tests.kube.cluster import cluster_client, kubeconfig, namespace

__all__ = ["cluster_client", "kubeconfig", "namespace"]
