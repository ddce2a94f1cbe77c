"""Runs code for lathe inside a sandbox. Started with `call` or `dialogue` as its only argument.

For each piece of code two lines come in: how long it is, then (after the code itself) a mark. What the code prints goes out, then
the mark, so that nobody who does not know it can end an answer. The value of a last expression is shown, as at a prompt.

`dialogue`: what was defined stays for the next piece. `call`: each piece runs in a child, forked from a Python that has run nothing;
after it every process of the sandbox is killed and the scratch folder emptied, so that nothing of it is left for the next.
"""

import ast
import ctypes
import json
import linecache
import os
import shutil
import signal
import sys
import time
import traceback
import types


def show(error, name):
    """The error as Python tells it, without this program's own part of the way."""
    flush()
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def run(code, name, space):
    """True when it went well."""
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    try:
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, name, "exec"), space)
        if last is not None:
            value = eval(compile(last, name, "eval"), space)
            if value is not None:
                print(repr(value))
    except SystemExit as error:
        if error.code is None or error.code == 0:
            return True
        if not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        return False
    except BaseException as error:
        show(error, name)
        return False
    return True


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass


def run_apart(code, space, requests):
    """The same in a child, which cannot read what comes next."""
    child = os.fork()
    if child == 0:
        is_good = False
        try:
            requests.close()
            let_look(True)
            is_good = run(code, "<code>", space)
            flush()
        finally:
            os._exit(0 if is_good else 1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        why = "too much CPU time" if number == signal.SIGXCPU else f"signal {number}"
        os.write(1, f"stopped: {why}\n".encode())
    elif os.WEXITSTATUS(status) > 1:
        os.write(1, f"ended: exit status {os.WEXITSTATUS(status)}\n".encode())
    return status == 0


def clear():
    """Leaves nothing of what ran; True when there is nothing left. Only ever in a sandbox, whose process 1 started this one."""
    if os.getppid() != 1 or os.getpid() > 50:
        return False
    try:
        # Every process but process 1 and this one.
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    else:
        # Process 1 takes them in before long.
        for _ in range(200):
            if sum(name.isdigit() for name in os.listdir("/proc")) <= 2:
                break
            time.sleep(0.005)
        else:
            return False
    for entry in os.scandir("/tmp"):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)
    return not os.listdir("/tmp")


def let_look(may):
    """Whether others of the same user may look into this process: a child's code could read there what comes next."""
    if ctypes.CDLL(None, use_errno=True).prctl(4, int(may), 0, 0, 0) != 0:  # PR_SET_DUMPABLE
        raise OSError(ctypes.get_errno(), "prctl")


def main():
    is_apart = sys.argv[1] == "call"
    # Without a buffer: the mark stays in the pipe until the code has run.
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(1, 2)
    # In the order in which it was written, errors too, and all of it if the code is stopped.
    sys.stdout.reconfigure(line_buffering=True, encoding="utf-8", errors="replace")
    sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
    if is_apart:
        let_look(False)
    # What the code defines stands in a `__main__` of its own.
    own = types.ModuleType("__main__")
    sys.modules["__main__"] = own
    os.write(1, b'{"ready": true}\n')
    number = 0
    while line := requests.readline():
        number += 1
        length, code = int(line), b""
        while len(code) < length:
            code += requests.read(length - len(code))
        code = code.decode()
        is_last = False
        if is_apart:
            is_good = run_apart(code, own.__dict__, requests)
            is_last = not clear()
        else:
            is_good = run(code, "<code>" if number == 1 else f"<code {number}>", own.__dict__)
            flush()
        mark = requests.readline().decode().strip()
        answer = ("\0" + mark + json.dumps({"good": is_good, "last": is_last}) + "\n").encode()
        while answer:
            answer = answer[os.write(1, answer) :]
        if is_last:
            break


main()
