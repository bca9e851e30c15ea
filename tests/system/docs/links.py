"""Checks that what pages link to is there: files, folders, headings."""

from __future__ import annotations

from pages import ROOT, anchors, links, pages


def check() -> list[str]:
    wrong, count = [], 0
    known: dict[str, set[str]] = {}
    for page in pages():
        for number, target in links(page):
            count += 1
            path, _, part = target.partition("#")
            file = ((ROOT / page).parent / path).resolve() if path else ROOT / page
            if not file.exists():
                wrong.append(f"{page}:{number}: {target}: there is no {path}")
            elif part and file.suffix == ".md":
                name = str(file.relative_to(ROOT))
                if part not in known.setdefault(name, anchors(name)):
                    wrong.append(f"{page}:{number}: {target}: {name} has no heading #{part}")
    print(f"{count} links, {len(wrong)} wrong")
    return wrong
