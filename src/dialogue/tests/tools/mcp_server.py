"""A Model Context Protocol server over stdio, for tests: written from the specification, without a library."""

import json
import sys
import time

TOOLS = [
    {
        "name": "add",
        "description": "Adds two numbers.",
        "inputSchema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    },
    {"name": "count", "inputSchema": {"type": "object"}},
    {"name": "odd", "inputSchema": {"type": "object", "properties": {"how": {"type": "string"}}}},
]


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(said, **more):
    return {"content": [{"type": "text", "text": said}], **more}


def call(name, arguments):
    global calls
    calls += 1
    if name == "add":
        return text(str(arguments["a"] + arguments["b"]))
    if name == "count":
        return text(f"call {calls}")
    how = arguments["how"]
    if how == "fails":
        return text("not today", isError=True)
    if how == "hangs":
        time.sleep(1000)
    if how == "dies":
        print("about to die", file=sys.stderr, flush=True)
        sys.exit(3)
    if how == "asks":
        # A client has to answer this before it is answered itself.
        send({"id": "ping-1", "method": "ping"})
        assert json.loads(sys.stdin.readline())["result"] == {}
        send({"id": 2, "method": "sampling/createMessage", "params": {}})
        assert json.loads(sys.stdin.readline())["error"]["code"] == -32601
        send({"method": "notifications/message", "params": {"level": "info", "data": "so"}})
        return text("heard")
    if how == "picture":
        return {"content": [{"type": "image", "data": "", "mimeType": "image/png"},
                            {"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}}]}
    if how == "structured":
        return {"content": [], "structuredContent": {"x": 1}}
    return text(how)


calls = 0
is_ready = False
for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params", {})
    if method == "notifications/initialized":
        is_ready = True
        continue
    if method == "initialize":
        assert params["protocolVersion"] and params["clientInfo"]["name"] == "lathe"
        result = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
    elif not is_ready:
        send({"id": message["id"], "error": {"code": -32002, "message": "not initialized"}})
        continue
    elif method == "tools/list":
        # In pages of one.
        at = int(params.get("cursor", 0))
        result = {"tools": TOOLS[at : at + 1]}
        if at + 1 < len(TOOLS):
            result["nextCursor"] = str(at + 1)
    elif method == "tools/call" and params["name"] in [tool["name"] for tool in TOOLS]:
        result = call(params["name"], params["arguments"])
    else:
        send({"id": message["id"], "error": {"code": -32601, "message": f"no such method {method}"}})
        continue
    send({"id": message["id"], "result": result})
