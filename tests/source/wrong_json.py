"""JSON texts that are refused, each with words of its message."""

from __future__ import annotations

WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "broken JSON on line 1"),
    "list": (b"[1]", "JSON list where an object"),
    "text": (b'"x"', "JSON string where an object"),
    "null": (b"null", "JSON constant where an object"),
    "cut off": (b'{\n "hidden_size": 1,\n "layers": [1,', "line 3, column .*after the field 'layers'"),
    "bad value": (b'{\n "a": 1,\n "hidden_size": nope\n}', "line 3, column .*after the field 'hidden_size'"),
    "key twice": (b'{"a": {"x": 1,\n "x": 2}}', "field 'x' stands twice .*line 2"),
    "deep lists": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "deep objects": (b'{"a":' * 90_000 + b"1" + b"}" * 90_000, "nested too deeply"),
    "invalid UTF-8": (b'{\n"a": "\xff"}', "invalid UTF-8 on line 2"),
    "huge number": (b'{"a": ' + b"9" * 5000 + b"}", "more digits"),
    "many lists": (b'{"a":[' + b"[]," * 300_000 + b"[]]}", "more than 200,000"),
    "many numbers": (b'{"a":[' + b"1," * 1_200_000 + b"1]}", "values"),
    "trailing": (b"{} {}", "extra data"),
}
