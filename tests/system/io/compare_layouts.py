#!/usr/bin/env python3
"""Holds one file's layout, as Sprat says it, against `lfs getstripe -v --yaml` and `lfs hsm_state`.

    compare_layouts.py FILE SPRAT_JSON GETSTRIPE_YAML HSM_STATE
    compare_layouts.py --self-test

What lfs writes is read line by line: it is no strict YAML in all versions, and no parser need be installed.
"""

import json
import re
import sys

EOF = 2**64 - 1


def number(word):
    return EOF if word == "EOF" else int(word, 0)


def components(text):
    """Components of getstripe's output; a plain file is one of the whole."""
    found, one = [], None
    for line in text.splitlines():
        match = re.match(r"\s*(?:- )?([A-Za-z_.]+):\s*(.*?)\s*$", line)
        objects = re.search(r"l_ost_idx:\s*(\d+)", line)
        if objects and one is not None:
            one["osts"].append(int(objects.group(1)))
        if not match:
            continue
        key, value = match.groups()
        if key == "lcme_id" or (key == "lmm_stripe_count" and one is None):
            one = {"id": 0, "flags": "init", "begin": 0, "end": EOF, "osts": [], "stripe": 0, "pattern": "raid0"}
            found.append(one)
        if one is None:
            continue
        if key == "lcme_id":
            one["id"], one["flags"] = number(value), "0"
        elif key == "lcme_flags":
            one["flags"] = value
        elif key == "lcme_extent.e_start":
            one["begin"] = number(value)
        elif key == "lcme_extent.e_end":
            one["end"] = number(value)
        elif key == "lmm_stripe_size":
            one["stripe"] = number(value)
        elif key == "lmm_pattern":
            one["pattern"] = value
    return found


def readable(one):
    flags = set(one["flags"].split(","))
    usable = "init" in flags and not flags & {"stale", "offline", "extension", "parity"}
    return usable and "released" not in one["pattern"] and (bool(one["osts"]) or "mdt" in one["pattern"])


def expected_target(found, offset):
    """Where Lustre reads this byte, by lfs's words; None if it says nothing."""
    here = [one for one in found if one["begin"] <= offset < one["end"] and readable(one)]
    if not here:
        return None
    best = min(here, key=lambda one: ("prefer" not in one["flags"].split(","), (one["id"] & 0x7FFF0000) >> 16))
    if "mdt" in best["pattern"]:
        return -1
    return best["osts"][offset // best["stripe"] % len(best["osts"])]


def told_target(answer, offset):
    for part in answer["ranges"]:
        if part["begin"] <= offset < part["end"]:
            stripe = offset // part["stripe_bytes"] if part["stripe_bytes"] else 0
            target = part["targets"][stripe % len(part["targets"])]
            return target if target >= -1 else None
    return None


def offsets(found, answer):
    """Both sides of every edge, and stripes in between."""
    size = answer["bytes"]
    edges = {0, size - 1}
    for one in found:
        edges |= {one["begin"] - 1, one["begin"], one["end"] - 1, one["end"]}
        if one["stripe"]:
            edges |= {one["begin"] + step * one["stripe"] for step in range(-2, 40)}
    return sorted(offset for offset in edges if 0 <= offset < size)


def differences(answer, getstripe, hsm):
    found = components(getstripe)
    wrong = []
    for offset in offsets(found, answer):
        ours, theirs = told_target(answer, offset), expected_target(found, offset)
        if ours != theirs:
            wrong.append(f"byte {offset} is on {theirs} by lfs, on {ours} by sprat")
    state = re.search(r"\((0x[0-9a-f]+)\)", hsm)
    ours = re.search(r"\((0x[0-9a-f]+)\)", answer["hsm"] or "")
    if state and (not ours or int(state.group(1), 16) != int(ours.group(1), 16)):
        wrong.append(f"HSM state is {hsm.strip()} by lfs, {answer['hsm']} by sprat")
    return wrong


def self_test():
    plain = """lmm_stripe_count:  2
lmm_stripe_size:   1048576
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 3
lmm_objects:
      - l_ost_idx: 3
        l_fid:     0x100030000:0xb:0x0
      - l_ost_idx: 5
        l_fid:     0x100050000:0xc:0x0
"""
    mirrored = """  lcm_layout_gen:    4
  lcm_mirror_count:  2
  lcm_entry_count:   2
  component0:
    lcme_id:             65537
    lcme_mirror_id:      1
    lcme_flags:          init,stale
    lcme_extent.e_start: 0
    lcme_extent.e_end:   EOF
    sub_layout:
      lmm_stripe_count:  1
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_objects:
      - l_ost_idx: 1
        l_fid:     0x100010000:0x2:0x0

  component1:
    lcme_id:             131073
    lcme_mirror_id:      2
    lcme_flags:          init,prefer
    lcme_extent.e_start: 0
    lcme_extent.e_end:   EOF
    sub_layout:
      lmm_stripe_count:  2
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_objects:
      - 0: { l_ost_idx: 2, l_fid: 0x100020000:0x2:0x0 }
      - 1: { l_ost_idx: 4, l_fid: 0x100040000:0x2:0x0 }
"""

    def answer(targets, hsm=None):
        return {"bytes": 5 << 20, "hsm": hsm,
                "ranges": [{"begin": 0, "end": 5 << 20, "stripe_bytes": 1 << 20, "targets": targets}]}

    checks = [
        (differences(answer([3, 5]), plain, ""), 0),
        (differences(answer([5, 3]), plain, ""), 1),
        (differences(answer([2, 4]), mirrored, ""), 0),
        (differences(answer([1]), mirrored, ""), 1),
        (differences(answer([3, 5], "(0x0000000d) released exists archived"), plain,
                     "f: (0x0000000d) released exists archived, archive_id:1"), 0),
        (differences(answer([3, 5], None), plain, "f: (0x0000000d) released exists archived, archive_id:1"), 1),
    ]
    for at, (wrong, should) in enumerate(checks):
        if bool(wrong) != bool(should):
            sys.exit(f"self-test {at}: {wrong}")
    print(f"{len(checks)} checks hold")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    path, ours, getstripe, hsm = sys.argv[1:5]
    with open(ours) as file:
        answer = json.load(file)
    with open(getstripe) as file, open(hsm) as state:
        wrong = differences(answer, file.read(), state.read())
    print(f"{path}: " + ("; ".join(wrong[:5]) if wrong else "as lfs says"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
