"""Drives real agents against a fake model on 127.0.0.1, and tells what each of them sent to it."""
