# What goes before it: `_program`, its text, and `_input`, what it reads. It finds the names that verl's judge of programs has.
import os as _os

_file = _os.open("/tmp/.input", _os.O_RDWR | _os.O_CREAT | _os.O_TRUNC)
_os.unlink("/tmp/.input")
_rest = _input.encode("utf-8", "surrogatepass")
while _rest:
    _rest = _rest[_os.write(_file, _rest) :]
_os.lseek(_file, 0, _os.SEEK_SET)
_os.dup2(_file, 0)
_os.close(_file)
_os.dup2(_os.open(_os.devnull, _os.O_WRONLY), 2)
import sys

sys.stdout.reconfigure(line_buffering=False)
from string import *
from re import *
from datetime import *
from collections import *
from heapq import *
from bisect import *
from copy import *
from math import *
from random import *
from itertools import *
from functools import *
from operator import *
from io import *
from json import *
from builtins import *
from typing import *
import string, re, datetime, collections, heapq, bisect, copy, math, random, itertools, functools, operator, io, json

sys.setrecursionlimit(600000)
try:
    exec(compile(_program, "<program>", "exec"), globals())
except SystemExit:
    pass
# As at the end of a Python of its own.
if "threading" in sys.modules:
    _threads = sys.modules["threading"]
    for _thread in _threads.enumerate():
        if _thread is not _threads.current_thread() and not _thread.daemon:
            _thread.join()
import atexit as _atexit

_atexit._run_exitfuncs()
sys.__stdout__.flush()
None
