"""HTTP/1.1: connections, routes, the endpoints of the protocol."""
