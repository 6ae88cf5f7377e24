"""Renew the locks of the images in extensions/images, and their lists of software.

`make image-locks` resolves what ``*.in`` files name to the newest versions that fit together. Licences are read from
the wheels in ``.cache/wheels``, which the lab collects; of other packages they are not stated.
"""

from __future__ import annotations

import email
import hashlib
import json
import re
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

FOLDER = Path("extensions/images")
RECIPES = ("distributed-cpu", "distributed-cuda")
SHARED = ("mlflow", "nni", "spark")
WHEELS = Path(".cache/wheels")
RESOLVER, RESOLVER_VERSION = Path(".cache/uv"), "0.13.9"
#: Compiled for the PyTorch of the image.
COMPILED = ("deepspeed", "horovod")
HOROVOD = "horovod==0.28.1"
#: What Horovod needs when it runs; its own list can only be read with PyTorch installed.
OF_HOROVOD = ("cffi", "cloudpickle", "packaging", "psutil", "pyyaml")
#: What compiles both: the build system, and all that PyTorch imports.
FOR_BUILD = {"filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "numpy", "pycparser"}
FOR_BUILD |= {"setuptools", "sympy", "typing-extensions", "wheel", *OF_HOROVOD}
#: PyPI's PyTorch names CUDA's libraries, which a CPU build does not have.
CUDA = re.compile(r"(nvidia-(?!ml-py)|cuda-|triton==)")
#: No name or word of this is a licence: fields of old packages contain whole texts.
LICENCE = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
KNOWN = {
    *CLASSIFIERS.values(),
    "0BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "HPND",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Unlicense",
    "Zlib",
}


def resolve(requirements: Iterable[str]) -> list[str]:
    """Return the lines of a lock: the newest versions that satisfy requirements and each other."""
    if not (RESOLVER / "bin/uv").exists():
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target", RESOLVER)
        subprocess.run([*pip, f"uv=={RESOLVER_VERSION}"], check=True)
    target = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")
    compile_lock = (RESOLVER / "bin/uv", "pip", "compile", "--quiet", "--no-annotate", "--no-header", *target, "-")
    text = "\n".join(requirements)
    done = subprocess.run(compile_lock, input=text, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def split_locks(lines: Iterable[str], recipe: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the locks of the environment ``distributed``: PyTorch is installed first, and what is compiled last."""
    if recipe != "distributed-cpu":
        kept, compiled = list(lines), []
    else:
        kept = [line for line in lines if not CUDA.match(line)]
        compiled = [line for line in kept if line.partition("==")[0] in COMPILED]
    yield "torch", [line for line in kept if line.startswith("torch==")]
    yield "distributed", [line for line in kept if not line.startswith("torch==") and line not in compiled]
    if compiled:
        yield "build", [line for line in kept if line.partition("==")[0] in FOR_BUILD]
        yield "compiled", sorted({*compiled, HOROVOD})


def read_licences() -> dict[str, str]:
    """Return the licences of the wheels that are at hand, by normalized name."""
    licences = {}
    for path in WHEELS.glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            (member,) = (name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
            metadata = email.message_from_bytes(wheel.read(member))
        licences[_normalized(metadata["Name"])] = _licence(metadata)
    return licences


def _licence(metadata: email.message.Message) -> str:
    """Return the licence of a package as an SPDX expression, ``NOASSERTION`` if it is not stated as one."""
    expression = str(metadata.get("License-Expression", ""))
    if expression and LICENCE.fullmatch(expression.replace("(", "").replace(")", "")):
        return expression
    stated = str(metadata.get("License", "")).strip()
    if stated in KNOWN:
        return stated
    classifiers = [str(value).rpartition(" :: ")[2] for value in metadata.get_all("Classifier", [])]
    found = [CLASSIFIERS[name] for name in classifiers if name in CLASSIFIERS]
    return found[0] if len(found) == 1 else "NOASSERTION"


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def software(recipe: str, licences: Mapping[str, str]) -> dict[str, object]:
    """Return the list of an image's software as an SPDX document, whose id changes with the software only."""
    folder = FOLDER / recipe / "locks"
    lines = sorted({line for lock in sorted(folder.glob("*.txt")) for line in lock.read_text().split()})
    debian = (FOLDER / "debian-packages.txt").read_text().split()
    packages = [
        _package(f"pypi/{_normalized(name)}", name, version, licences.get(_normalized(name), "NOASSERTION"))
        for name, _equals, version in (line.partition("==") for line in lines)
    ]
    packages += [_package(f"deb/debian/{name}", name, "", "NOASSERTION") for name in debian]
    digest = hashlib.sha256("\n".join([*lines, *debian]).encode()).hexdigest()
    relations = [
        {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": package["SPDXID"]}
        for package in packages
    ]
    return {
        "spdxVersion": "SPDX-2.3",
        "SPDXID": "SPDXRef-DOCUMENT",
        "dataLicense": "CC0-1.0",
        "name": recipe,
        "documentNamespace": f"https://spdx.org/spdxdocs/{recipe}-{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: make image-locks"]},
        "packages": packages,
        "relationships": relations,
    }


def _package(path: str, name: str, version: str, licence: str) -> dict[str, object]:
    """Return a package, whose purl has this path; without a version it is the distribution's newest."""
    at = f"@{version}" if version else ""
    identity = re.sub(r"[^A-Za-z0-9.-]", "-", f"{path}-{version}".rstrip("-"))
    purl = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": f"pkg:{path}{at}"}
    stated = {"versionInfo": version} if version else {}
    return {
        "SPDXID": f"SPDXRef-{identity}",
        "name": name,
        **stated,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [purl],
    }


def main() -> None:
    """Write all locks and lists."""
    licences = read_licences()
    shared = {name: resolve((FOLDER / "requirements" / f"{name}.in").read_text().split()) for name in SHARED}
    for recipe in RECIPES:
        wanted = (FOLDER / recipe / "distributed.in").read_text().split()
        of_horovod = OF_HOROVOD if recipe == "distributed-cpu" else ()
        locks = {
            "uv": [f"uv=={RESOLVER_VERSION}"],
            **dict(split_locks(resolve([*wanted, *of_horovod]), recipe)),
            **shared,
        }
        for name, lines in locks.items():
            (FOLDER / recipe / "locks" / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        document = json.dumps(software(recipe, licences), indent=1)
        (FOLDER / recipe / "software.spdx.json").write_text(f"{document}\n")
        print(f"wrote {FOLDER / recipe}")


if __name__ == "__main__":
    main()
