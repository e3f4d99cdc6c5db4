"""What is installed without Helm: plain manifests, kustomize, Argo CD and Flux."""
