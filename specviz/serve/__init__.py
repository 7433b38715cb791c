"""Serving the engine to pages: the shared model, the line in front of it, one session per page; knows no UI."""

from specviz.serve.desk import Desk, Ticket
from specviz.serve.host import Host, Status
from specviz.serve.session import Session

__all__ = ["Desk", "Host", "Session", "Status", "Ticket"]
