# What goes before it: `_program`, its text, `_tests`, Python that asserts, and `_mark`, which alone is printed, after them.
import os as _os

_out = _os.dup(1)
_null = _os.open(_os.devnull, _os.O_WRONLY)
_os.dup2(_null, 1)
_os.dup2(_null, 2)
exec(compile(_program, "<program>", "exec"), globals())
exec(compile(_tests, "<tests>", "exec"), globals())
_os.write(_out, _mark.encode())
None
