"""The API of Slipway: typed spec and status of a ModelDeployment, its validation, and what a reconcile observes.

Everything here is pure: no I/O, no clock. The CustomResourceDefinition in ``crds/`` is generated from these types.
"""
