"""Checks that Python and JSON on the pages can be read by who reads such files."""

from __future__ import annotations

import json

from pages import blocks, pages


def check() -> list[str]:
    wrong, count = [], 0
    for page in pages():
        for number, language, lines in blocks(page):
            text = "\n".join(lines)
            try:
                if language == "python":
                    compile(text, page, "exec")
                elif language == "json":
                    json.loads(text)
                else:
                    continue
                count += 1
            except (SyntaxError, ValueError) as error:
                wrong.append(f"{page}:{number}: no {language}: {error}")
    print(f"{count} snippets of Python and JSON, {len(wrong)} wrong")
    return wrong
