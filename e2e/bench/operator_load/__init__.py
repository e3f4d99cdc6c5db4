"""How the operator bears a thousand ModelDeployments: `python -m e2e.bench.operator_load`."""
