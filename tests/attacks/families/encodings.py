"""Code and output that are no clean text, or break the parser."""

FAMILIES: list[tuple[str, dict[str, str], str]] = [
    (
        "encodings",
        {
            "null byte": "print('a')\0print('b')",
            "lone surrogate in the code": "print('\ud800')",
            "lone surrogate printed": "print(chr(0xDC80), chr(0xD800))\nchr(0xD800)",
            "bytes that are no text": "os.write(1, bytes(range(256)))",
            "encoding cookie": "# -*- coding: utf-7 -*-\n+AG8-s",
            "five megabytes of code": "x = '" + "a" * (5 << 20) + "'",
            "many lines": "\n" * 500_000,
            "deep parentheses": "x = " + "(" * 5000 + ")" * 5000,
            "deep operators": "x = " + "-" * 100_000 + "1",
            "deep attributes": "x" + ".a" * 50_000,
            "control characters": "print('\\x1b[2J\\x07\\r\\x00\\u202e')",
            "nested exec": "code = 'x'\nfor _ in range(50): code = f'exec({code!r})'\nexec(code)",
        },
        "",
    ),
]
