"""The demo: a real model rolled out by the real operator in the sandbox, watched live in the terminal."""
