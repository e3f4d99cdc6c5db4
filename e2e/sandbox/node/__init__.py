"""The sandbox's node agent: a stand-in for the kubelet that runs pods as local processes, without containers.

Each pod has an address of its own in a loopback range; processes share the machine's file system, users and kernel.
GPUs of the node are simulated. Nothing here isolates anything: run only what you would run by hand.
"""
