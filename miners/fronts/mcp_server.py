# SPDX-License-Identifier: Apache-2.0
"""An MCP server for an ``Agent``: its tools, and its free texts as resources, over stdio or HTTP.

The agent checks the arguments itself, because errors of the package ``mcp`` would quote them. Tools run in threads, so
that a long query does not delay the free tools.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from typing import Any

from mcp import types
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from miners.fronts.agents import GUIDE, Agent

LOOPBACK = "127.0.0.1"
RESOURCES = ("guide", "columns", "budget", "history")


def server_of(agent: Agent) -> Server[Any]:
    """Makes a server that offers an agent's tools and resources."""

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(agent, name) for name in agent.tools])

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        result = await asyncio.to_thread(agent.call, params.name, params.arguments)
        rows = {"rows": list(result.rows)} if result.rows else None
        content: list[types.ContentBlock] = [types.TextContent(type="text", text=result.text)]
        return types.CallToolResult(content=content, structured_content=rows, is_error=result.is_error)

    async def list_resources(_: Any, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        resources = [types.Resource(uri=f"pinq://{name}", name=name, mime_type="text/plain") for name in RESOURCES]
        return types.ListResourcesResult(resources=resources)

    async def read_resource(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        name = str(params.uri).removeprefix("pinq://").strip("/")
        if name not in RESOURCES:
            raise MCPError(types.INVALID_PARAMS, f"there is no such resource; there are {', '.join(RESOURCES)}.")
        result = await asyncio.to_thread(agent.call, name)
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=result.text)])

    return Server(
        "pinq",
        instructions=f"A private table. {GUIDE}",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def _tool(agent: Agent, name: str) -> types.Tool:
    tool = agent.tools[name]
    hints = types.ToolAnnotations(read_only_hint=not tool.spends, destructive_hint=tool.spends, idempotent_hint=True)
    return types.Tool(
        name=name, description=tool.purpose, input_schema=tool.takes.model_json_schema(), annotations=hints
    )


class AccessKey:
    """The key that every request needs, because all users of a machine reach its loopback address."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(32)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Returns the access of this key; None for any other token."""
        if not secrets.compare_digest(token.encode(), self.text.encode()):
            return None
        return AccessToken(token=token, client_id="agent", scopes=[])


def serve(agent: Agent, port: int | None = None) -> None:
    """Serves an agent until the process is stopped: over stdio, or over HTTP at ``/mcp`` of a loopback port."""
    server = server_of(agent)
    if port is None:
        asyncio.run(_over_stdio(server))
        return
    import uvicorn

    key, root = AccessKey(), f"http://{LOOPBACK}:{port}"
    guarded = AuthSettings.model_validate({"issuer_url": root, "resource_server_url": None})
    app = server.streamable_http_app(host=LOOPBACK, auth=guarded, token_verifier=key)
    print(f"Serving {root}/mcp. Each request needs the header\nAuthorization: Bearer {key.text}", file=sys.stderr)
    uvicorn.run(app, host=LOOPBACK, port=port, log_level="warning")


async def _over_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
