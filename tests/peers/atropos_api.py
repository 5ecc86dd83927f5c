"""Atropos' own API server, the application of `run-api`, on a free port of the loopback interface alone."""

import socket
import sys

import uvicorn
from atroposlib.api import app

with socket.create_server(("127.0.0.1", 0)) as listening:
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
