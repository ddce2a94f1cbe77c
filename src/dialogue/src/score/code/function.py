# What goes before it: `_program`, its text, `_name`, of its function, and `_arguments`, a list as JSON. Only what the function gives
# is printed, as JSON.
import json as _json
import os as _os

_out = _os.dup(1)
_null = _os.open(_os.devnull, _os.O_WRONLY)
_os.dup2(_null, 1)
_os.dup2(_null, 2)
import sys
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
_values = _json.loads(_arguments)
# JSON has texts for keys; where the first argument has numbers there, it gets them back, as in APPS.
if _values and isinstance(_values[0], dict):
    try:
        _values[0] = {int(_key): _value for _key, _value in _values[0].items()}
    except ValueError:
        pass
exec(compile(_program, "<program>", "exec"), globals())
_call = getattr(globals()["Solution"](), _name) if "class Solution" in _program else globals()[_name]
_rest = _json.dumps(_call(*_values)).encode()
while _rest:
    _rest = _rest[_os.write(_out, _rest) :]
None
