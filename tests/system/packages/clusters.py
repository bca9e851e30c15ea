"""Reads the blocks of docs/clusters.md: python3 clusters.py [CRD.yaml ...].

Shell by `bash -n`, and by shellcheck where there is one; Python is compiled; YAML is parsed and, with the operators' definitions (the
CustomResourceDefinitions pytorchjobs.kubeflow.org and mpijobs.kubeflow.org), held against their schemas: no field that they do not
know, each of its type, none that is required missing. Exit 77 without PyYAML.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

try:
    import yaml
except ImportError:
    print("skipped: there is no PyYAML: apt-get install python3-yaml")
    sys.exit(77)

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/clusters.md"
KINDS = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list, "number": (int, float)}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def faults_of(value: object, schema: dict, place: str) -> list[str]:
    """What of `value` the schema does not allow."""
    if schema.get("x-kubernetes-int-or-string"):
        return [] if isinstance(value, (int, str)) else [f"{place} is neither a number nor a text"]
    kind = schema.get("type")
    if kind and (not isinstance(value, KINDS[kind]) or isinstance(value, bool) != (kind == "boolean")):
        return [f"{place} is {value!r}, not of type {kind}"]
    if isinstance(value, list):
        return [fault for i, item in enumerate(value) for fault in faults_of(item, schema.get("items", {}), f"{place}[{i}]")]
    faults = []
    if isinstance(value, dict):
        faults = [f"{place}.{key} is missing" for key in schema.get("required", []) if key not in value]
        known, rest = schema.get("properties"), schema.get("additionalProperties")
        for key, item in value.items():
            if known and key in known:
                faults += faults_of(item, known[key], f"{place}.{key}")
            elif isinstance(rest, dict):
                faults += faults_of(item, rest, f"{place}.{key}")
            elif known is not None and not schema.get("x-kubernetes-preserve-unknown-fields"):
                faults.append(f"{place}.{key} is no field")
    if "enum" in schema and value not in schema["enum"]:
        faults.append(f"{place} is {value!r}, not one of {schema['enum']}")
    return faults


def schemas(files: list[str]) -> dict[tuple[str, str], dict]:
    """(apiVersion, kind) -> its schema."""
    found = {}
    for file in files:
        for definition in yaml.safe_load_all(pathlib.Path(file).read_text()):
            if not definition or definition.get("kind") != "CustomResourceDefinition":
                continue
            spec = definition["spec"]
            for version in spec["versions"]:
                found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = version["schema"]["openAPIV3Schema"]
    return found


def main(files: list[str]) -> int:
    faults: list[str] = []
    checked = 0
    known = schemas(files)
    for text in blocks("yaml"):
        document = yaml.safe_load(text)
        key = (document.get("apiVersion"), document.get("kind"))
        if key in known:
            faults += faults_of(document, known[key], key[1])
            checked += 1
        elif files and key[1]:
            faults.append(f"no definition of {key} was given")
    for text in blocks("sh"):
        # A command line alone stands in no script; what a whole script says first is kept.
        script = text if text.startswith("#!") else "#!/bin/bash\n" + text
        for tool in (["bash", "-n"], ["shellcheck", "-"]):
            if shutil.which(tool[0]):
                done = subprocess.run(tool, input=script, capture_output=True, text=True)
                faults += [f"{tool[0]}: {done.stdout}{done.stderr}{text}"] if done.returncode else []
    for text in blocks("python"):
        try:
            compile(text, str(PAGE), "exec")
        except SyntaxError as error:
            faults.append(f"{error}: {text}")
    counts = {language: len(blocks(language)) for language in ("yaml", "sh", "python")}
    if min(counts.values()) == 0:
        faults.append(f"blocks are missing: {counts}")
    print("\n".join(faults) if faults else f"{counts}, {checked} documents held against their definitions")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
