"""Property tests here run on machines that do other work: no example has a time limit of its own."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
