#!/usr/bin/env python3
"""Writes docs/hotlap.1 from what hotlap says of itself: packaging/man.py target/release/hotlap"""

import os
import subprocess
import sys


def helped(*command):
    told = subprocess.run(
        [sys.argv[1], *command, "--help"],
        check=True, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"},
    )
    return told.stdout.rstrip()


def plain(text):
    """Text as it stands, for troff."""
    lines = []
    for line in text.replace("\\", "\\e").replace("-", "\\-").splitlines():
        lines.append("\\&" + line if line.startswith((".", "'")) else line)
    return ".nf\n" + "\n".join(lines) + "\n.fi\n"


top = helped()
about, rest = top.split("Usage:", 1)
commands = rest.split("Commands:", 1)[1].split("Options:", 1)[0].splitlines()
names = [line.split()[0] for line in commands if line.startswith("  ") and line[2] != " "]
# `hotlap help COMMAND` is `hotlap COMMAND --help`, and has no help of its own.
names.remove("help")
page = '.TH HOTLAP 1 "" "hotlap" "User Commands"\n'
page += ".SH NAME\nhotlap \\- hyperfine for HTTP servers\n"
page += ".SH SYNOPSIS\n.B hotlap\nCOMMAND [OPTION]...\n"
page += ".SH DESCRIPTION\n" + about.strip().replace("-", "\\-") + "\n"
page += plain("Options:" + rest.split("Options:", 1)[1])
page += ".SH COMMANDS\n"
for name in names:
    page += f".SS hotlap {name}\n" + plain(helped(name))
page += ".SH FILES\n.TP\n.I ~/.local/share/hotlap/hotlap.db\nthe runs (\\-\\-store)\n"
page += ".TP\n.I ~/.cache/hotlap\nbuilds and the unpacked catalogue (HOTLAP_CACHE)\n"
page += ".TP\n.I ~/.config/hotlap/config.toml\ndefaults of your own (HOTLAP_CONFIG, \\-\\-no\\-config)\n"
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "hotlap.1")
with open(path, "w", encoding="utf-8") as file:
    file.write(page)
