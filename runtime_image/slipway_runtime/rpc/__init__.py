"""gRPC: ``inference.GRPCInferenceService`` and health checks, with a codec of our own.

Messages are read and written without generated code. Registering the protocol's package would clash with every client
of the protocol in the same process, and tie this server to a version of protobuf.
"""
