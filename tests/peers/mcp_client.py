"""An agent over the MCP project's own client library. In: `{"url", "plays": [{"path", "name", "arguments"}]}`."""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError

Json = dict[str, Any]


async def play(address: str, name: str, arguments: Json) -> Json:
    async with streamablehttp_client(address) as (read, write, session_id), ClientSession(read, write) as session:
        hello = await session.initialize()
        await session.send_ping()
        tools = (await session.list_tools()).tools
        called = await session.call_tool(name, arguments)
        mistaken = await session.call_tool("reset", {})
        try:
            await session.list_prompts()
            unknown = None
        except McpError as error:
            unknown = error.error.code
        return {
            "server": hello.serverInfo.name,
            "version": hello.protocolVersion,
            "instructions": hello.instructions,
            "session": session_id(),
            "tools": [tool.name for tool in tools],
            "said": [content.text for content in called.content],
            "is_error": called.isError,
            "meta": called.meta,
            "mistaken": mistaken.isError,
            "unknown": unknown,
        }


def main() -> None:
    work = json.load(sys.stdin)
    found = [asyncio.run(play(work["url"] + one["path"], one["name"], one["arguments"])) for one in work["plays"]]
    json.dump(found, sys.stdout)


main()
