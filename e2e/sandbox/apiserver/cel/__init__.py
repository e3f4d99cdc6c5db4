"""CEL rules of custom resources: compiled and costed when a definition is created, evaluated at each write.

Expressions are parsed and evaluated by cel-python; the static checks and cost limits of Kubernetes are this package's.
"""
