"""Runs a reward function for lathe: one JSON object a line comes in, one goes out.

Started with its settings as the only argument. What the function prints goes to stderr, never into the answers.
"""

import asyncio
import importlib.util
import inspect
import json
import math
import os
import sys


def end_with_parent():
    """A worker that hangs must not outlive the trainer; without Linux it ends when its input does."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    except (OSError, AttributeError, ImportError):
        pass


def limit(memory_bytes):
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    except (ImportError, ValueError, OSError) as error:
        print(f"lathe: the memory of a reward worker is not limited: {error}", file=sys.stderr)


def load(path, name):
    directory = os.path.dirname(os.path.abspath(path))
    sys.path.append(directory)
    spec = importlib.util.spec_from_file_location("custom_module", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["custom_module"] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def number(value):
    """JSON has no NaN: such a number goes as text."""
    value = float(value)
    return value if math.isfinite(value) else repr(value)


def answer(result):
    if not isinstance(result, dict):
        score = number(result)
        # As verl does, so that both kinds of function give the same columns.
        return {"score": score, "parts": {"acc": score}}
    parts = {}
    for key, value in result.items():
        if key == "score" or isinstance(value, str):
            continue
        try:
            parts[str(key)] = number(value)
        except (TypeError, ValueError):
            continue
    # verl's name for what the function read in the answer; its maj@n votes over it.
    says = result.get("pred")
    return {"score": number(result["score"]), "parts": parts, "says": None if says is None else str(says)}


def place(error):
    """The last line of the function's own code that the error went through."""
    where = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<"):
            where = f" ({os.path.basename(file)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}"[:500] + where


def main():
    settings = json.loads(sys.argv[1])
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    end_with_parent()
    limit(settings["memory_bytes"])

    def send(message):
        answers.write(json.dumps(message).encode() + b"\n")
        answers.flush()

    try:
        function = load(settings["path"], settings["name"])
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    except BaseException as error:  # an exit at import is an error too
        send({"error": place(error)})
        os._exit(1)
    send({"ready": True})
    for line in requests:
        request = json.loads(line)
        try:
            result = function(**request, **settings["kwargs"])
            if inspect.isawaitable(result):
                result = loop.run_until_complete(result)
            message = answer(result)
        except MemoryError as error:
            # What has leaked stays leaked: the next call gets a new process.
            send({"error": place(error), "last": True})
            os._exit(1)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too
            message = {"error": place(error)}
        send(message)
    os._exit(0)


main()
