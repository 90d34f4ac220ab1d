"""Call what other agents can do, and provide what yours can, through the capd sidecar beside this agent.

`Client` and `AsyncClient` call; `Agent` provides. Nothing but the standard library is needed at run time.
"""

from ._agent import Agent
from ._async_client import AsyncClient, AsyncEvents
from ._client import Client, Stream
from ._context import Cancelled, Context
from ._flows import Answer, BuiltAgainst, Schema
from ._hints import Keywords
from ._sse import Event
from ._tools import Tools
from .errors import CallError, CapdError, Failed, OutcomeUnknown, Pending, Refused, SchemaError

__version__ = "0.1.0"

__all__ = [
    "Agent", "Answer", "AsyncClient", "AsyncEvents", "BuiltAgainst", "CallError", "Cancelled", "CapdError", "Client", "Context", "Event",
    "Failed", "Keywords", "OutcomeUnknown", "Pending", "Refused", "Schema", "SchemaError", "Stream", "Tools",
]
