#!/usr/bin/env python3
"""Makes the moving picture that README shows from a real run in a terminal.

    docs/record.py hotlap run go/net-http rust/hyper node/http
    docs/record.py --cast run.cast       # again, from what was recorded

The first records into run.cast (asciicast v2) and writes docs/run.svg; python3 is all it needs.
"""

import codecs
import fcntl
import json
import os
import pty
import re
import shlex
import struct
import sys
import termios
import time
from html import escape
from pathlib import Path

COLUMNS, ROWS = 80, 34
STEP_S = 1.5  # of the run, between two frames
FRAME_S = 0.25  # how long a frame is shown
LAST_S = 12  # how long the last one is
WIDTH, HEIGHT = 8.43, 18  # of a character, in pixels, at a font size of 14


def record(argv, path):
    """Runs a command in a terminal of its own and writes down what it prints, and when."""
    pid, terminal = pty.fork()
    if pid == 0:
        time.sleep(0.2)  # until the terminal has its size
        os.environ["TERM"] = "xterm-256color"
        os.execvp(argv[0], argv)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    decode, began = codecs.getincrementaldecoder("utf8")(), time.time()
    with open(path, "w", encoding="utf8") as cast:
        head = {"version": 2, "width": COLUMNS, "height": ROWS, "command": shlex.join(argv)}
        print(json.dumps(head), file=cast)
        while True:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # the end of a terminal
                break
            event = [round(time.time() - began, 3), "o", decode.decode(part)]
            print(json.dumps(event), file=cast)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Screen:
    """As much of a terminal as hotlap uses: lines of (character, style)."""

    def __init__(self):
        self.lines, self.row, self.column, self.style = [[]], 0, 0, ""

    def write(self, text):
        for control, arguments, final, character in re.findall(
            r"(\x1b\[([0-9;?]*)([A-Za-z])|\r|\n)|([^\x1b])", text.replace("\r\n", "\n")
        ):
            if control == "\r":
                self.column = 0
            elif control == "\n":
                self.row, self.column = self.row + 1, 0
            elif control:
                self.control(final, arguments)
            else:
                self.put(character)
            while len(self.lines) <= self.row:
                self.lines.append([])

    def control(self, final, arguments):
        count = int(arguments) if arguments.isdigit() else 1
        if final == "A":
            self.row = max(self.row - count, 0)
        elif final == "B":
            self.row += count
        elif final == "K":
            self.lines[self.row] = []
        elif final == "m":
            kept = "" if arguments in ("", "0") else self.style
            codes = [code for code in arguments.split(";") if code not in ("", "0")]
            self.style = " ".join(kept.split() + [f"s{code}" for code in codes])

    def put(self, character):
        if self.column == COLUMNS:  # a full line wraps with the next character
            self.row, self.column = self.row + 1, 0
            self.lines.extend([] for _ in range(self.row + 1 - len(self.lines)))
        line = self.lines[self.row]
        line.extend([(" ", "")] * (self.column + 1 - len(line)))
        line[self.column] = (character, self.style)
        self.column += 1

    def markup(self):
        """The visible lines, as the content of SVG's text elements."""
        shown = []
        for line in self.lines[-ROWS:]:
            runs = []
            for character, style in line:
                if runs and runs[-1][1] == style:
                    runs[-1][0] += character
                else:
                    runs.append([character, style])
            if runs and not runs[-1][1]:
                runs[-1][0] = runs[-1][0].rstrip()
            spans = (
                f'<tspan class="{style}">{escape(text)}</tspan>' if style else escape(text)
                for text, style in runs
            )
            shown.append("".join(spans))
        return shown


def frames(path):
    """The command, how long it took in seconds, and the frames of the picture."""
    with open(path, encoding="utf8") as cast:
        head, *events = map(json.loads, cast)
    screen, found, due = Screen(), [], 0.0
    screen.write(f"\x1b[1m$ {head['command']}\x1b[0m\n")
    for at, _, text in events:
        if at >= due:
            found.append(screen.markup())
            due = at + STEP_S
        screen.write(text)
    found.append(screen.markup())
    return head["command"], events[-1][0], found


def svg(path):
    command, took, all_frames = frames(path)
    width, height = round(COLUMNS * WIDTH) + 24, ROWS * HEIGHT + 24
    shown = (len(all_frames) - 1) * FRAME_S + LAST_S
    texts, strip, steps = {}, [], []
    for number, frame in enumerate(all_frames):
        for row, text in enumerate(frame):
            if text:
                name = texts.setdefault(text, f"t{len(texts)}")
                y = number * height + row * HEIGHT + 26
                strip.append(f'<use href="#{name}" y="{y}"/>')
        steps.append(
            f"{number * FRAME_S / shown:.3%}{{transform:translateY({-number * height}px)}}"
        )
    last = f"transform:translateY({-(len(all_frames) - 1) * height}px)"
    speed = round(STEP_S / FRAME_S)
    defs = "\n".join(f'<text id="{name}" x="12">{text}</text>' for text, name in texts.items())
    newline = "\n"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">
<title>{escape(command)}: {took:.0f} s, {speed} times as fast</title>
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d4d4d4;white-space:pre}}
.s1{{font-weight:bold}}.s2{{fill:#8a8a8a}}.s31{{fill:#f14c4c}}.s32{{fill:#4ec98b}}.s33{{fill:#e5c07b}}
g{{{last};animation:strip {shown:g}s step-end infinite}}
@keyframes strip{{{"".join(steps)}}}
@media (prefers-reduced-motion){{g{{animation:none}}}}
</style>
<defs>
{defs}
</defs>
<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>
<g>
{newline.join(strip)}
</g>
</svg>
"""


def main():
    cast, argv = Path("run.cast"), sys.argv[1:]
    if argv[:1] == ["--cast"]:
        cast, argv = Path(argv[1]), argv[2:]
    if argv and (code := record(argv, cast)) != 0:
        sys.exit(f"{shlex.join(argv)} ended with exit code {code}")
    Path(__file__).with_name("run.svg").write_text(svg(cast), encoding="utf8")


if __name__ == "__main__":
    main()
