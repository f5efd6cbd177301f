#!/usr/bin/env python3
"""Keeps what hotlap found in CI: a comment on each pull request, and a ledger on a branch.

    gate.py restore FOLDER    fetches the certificates of all machines into FOLDER
    gate.py publish FOLDER    comments on a pull request, and adds a line to the ledger
    gate.py certify FILE...   keeps certificates

All commands need GITHUB_REPOSITORY and GITHUB_TOKEN, and `publish` needs HEAD_SHA: the commit that
was measured. The branch is hotlap-ledger, unless LEDGER_BRANCH names another.

The folder of `publish` may come from a fork. So its numbers are read as numbers, its report is
only ever text, and GitHub must confirm that the commit is the head of the pull request.
"""

import base64
import datetime
import json
import math
import os
import re
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

MARK = "<!-- hotlap -->"
# GitHub refuses comments of over 65,536 characters.
COMMENT_CHARS = 60_000
# A line takes about 300 bytes, and GitHub's API returns files of up to 1 MB.
LEDGER_LINES = 2_000
VERDICTS = {0: "passed", 4: "undecided", 5: "regression"}
CERTIFICATE = re.compile(r"certificate-[0-9a-f]{16}\.json")
README = """Written by hotlap's GitHub actions.

- `ledger.jsonl`: one line for each measured commit of a pull request.
- `certificate-*.json`: what each kind of runner can tell apart.
"""


class Refused(Exception):
    """GitHub refused a request."""

    def __init__(self, status, text):
        super().__init__(f"GitHub answered {status}: {text[:300]}")
        self.status = status


def call(method, path, body=None):
    """Makes a request to the repository's API, and returns the response."""
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    request = urllib.request.Request(
        f"{api}/repos/{os.environ['GITHUB_REPOSITORY']}/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}",
            "Content-Type": "application/json",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read() or b"null")
    except urllib.error.HTTPError as why:
        raise Refused(why.code, why.read().decode(errors="replace")) from None


class Branch:
    """The branch of the ledger, which has no commit in common with the code."""

    def __init__(self):
        self.name = os.environ.get("LEDGER_BRANCH") or "hotlap-ledger"

    def read(self, path):
        """Returns a file and its hash, or nothing if there is no such file."""
        try:
            found = call("GET", f"contents/{path}?ref={self.name}")
        except Refused as why:
            if why.status == 404:
                return "", None
            raise
        return base64.b64decode(found["content"]).decode(), found["sha"]

    def names(self):
        """Returns the names of all files."""
        try:
            return [found["name"] for found in call("GET", f"contents/?ref={self.name}")]
        except Refused as why:
            if why.status == 404:
                return []
            raise

    def write(self, path, changed, message):
        """Replaces a file. Repeats the change if another job writes at the same time."""
        for attempt in range(6):
            text, sha = self.read(path)
            content = base64.b64encode(changed(text).encode()).decode()
            body = {"message": message, "content": content, "branch": self.name}
            try:
                return call("PUT", f"contents/{path}", body | ({"sha": sha} if sha else {}))
            except Refused as why:
                if why.status == 404 and attempt == 0:
                    self.create()
                elif why.status not in (409, 422) or attempt == 5:
                    raise
                else:
                    time.sleep(attempt)

    def create(self):
        """Creates the branch with a first commit of its own."""
        files = [{"path": "README.md", "mode": "100644", "type": "blob", "content": README}]
        tree = call("POST", "git/trees", {"tree": files})["sha"]
        first = {"message": "The ledger of hotlap", "tree": tree, "parents": []}
        commit = call("POST", "git/commits", first)["sha"]
        try:
            call("POST", "git/refs", {"ref": f"refs/heads/{self.name}", "sha": commit})
        except Refused as why:
            # Another job has just created it.
            if why.status != 422:
                raise


def number(value):
    """Returns a finite number, or nothing."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def line(value):
    """Returns a text without control characters, of at most 100 characters."""
    text = value if isinstance(value, str) else ""
    return "".join(c for c in text if c.isprintable())[:100]


def at(value, *keys):
    """Returns a value inside of a document, or nothing."""
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def entry(run, exit_code, pull):
    """Returns the line of the ledger about a run."""
    rows = at(run, "tables", 0, "rows")
    heads = [row for row in rows if at(row, "name") == "head"] if isinstance(rows, list) else []
    ratio = at(heads, 0, "against", "cost", "ratio")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "pull": pull["number"],
        "commit": pull["head"]["sha"],
        "base": pull["base"]["sha"],
        "verdict": VERDICTS.get(exit_code, "failed"),
        "cost": [number(at(ratio, end)) for end in ("value", "low", "high")],
        "noise": number(at(run, "noise", "cost", "band")),
        "cpu": line(at(run, "host", "machine", "cpu")),
        "hotlap": line(at(run, "run", "hotlap")),
    }


def past(ledger, own):
    """Says what earlier runs on the same CPU model found."""
    entries = [json.loads(text) for text in ledger.splitlines() if text.strip()]
    alike = [found for found in entries if found["cpu"] == own["cpu"]]
    others = len(entries) - len(alike)
    if not own["cpu"]:
        return "The CPU model is unknown, so earlier runs are not compared with this one."
    said = f"Earlier runs on {own['cpu']}: "
    if alike:
        counts = [
            f"{sum(found['verdict'] == verdict for found in alike)} {verdict}"
            for verdict in ("passed", "regression", "undecided", "failed")
        ]
        said += ", ".join(counts)
        noise = sorted(found["noise"] for found in alike if found["noise"] is not None)
        if noise:
            said += f"; noise floor {100 * noise[0]:.1f}% to {100 * noise[-1]:.1f}%"
    else:
        said += "none"
    left = f" Runs on other CPU models are not compared: {others}." if others else ""
    return f"{said}.{left}"


def comment(pull, body):
    """Writes the comment on a pull request, or replaces the earlier one."""
    own = os.environ.get("COMMENT_AUTHOR") or "github-actions[bot]"
    for page in range(1, 31):
        comments = call("GET", f"issues/{pull}/comments?per_page=100&page={page}")
        for found in comments:
            if found["user"]["login"] == own and found["body"].startswith(MARK):
                return call("PATCH", f"issues/comments/{found['id']}", {"body": body})
        if len(comments) < 100:
            break
    return call("POST", f"issues/{pull}/comments", {"body": body})


def report_of(folder):
    """Returns the report as the text of a comment, in which nobody is mentioned."""
    file = folder / "report.md"
    text = file.read_text(errors="replace") if file.exists() else ""
    # A zero-width space keeps the words and ends the mention.
    text = text.replace("@", "@\u200b")
    if len(text) > COMMENT_CHARS:
        text = text[:COMMENT_CHARS].rpartition("\n")[0] + "\n\nThe rest is in the artifact.\n"
    return text or "hotlap wrote no report. The log of the job has the reason.\n"


def publish(folder):
    """Comments on a pull request, and adds a line to the ledger."""
    pull = call("GET", f"pulls/{int((folder / 'number').read_text())}")
    if pull["head"]["sha"] != os.environ["HEAD_SHA"]:
        print(
            f"Nothing is published: the head of pull request {pull['number']} is not the commit "
            "that was measured. A later push has a run of its own."
        )
        return
    file = folder / "run.json"
    run = json.loads(file.read_text()) if file.exists() else {}
    own = entry(run, int((folder / "exit").read_text()), pull)
    branch, before = Branch(), ""

    def added(ledger):
        nonlocal before
        before = ledger
        lines = [*ledger.splitlines(), json.dumps(own)][-LEDGER_LINES:]
        return "\n".join(lines) + "\n"

    branch.write("ledger.jsonl", added, f"Pull request {pull['number']}: {own['verdict']}")
    comment(pull["number"], f"{MARK}\n{report_of(folder)}\n{past(before, own)}\n")


def certify(files):
    """Keeps certificates."""
    for file in map(Path, files):
        if not CERTIFICATE.fullmatch(file.name):
            sys.exit(f"{file} is not a certificate")
        text = file.read_text()
        Branch().write(file.name, lambda _: text, f"Certificate of {file.stem[12:]}")


def restore(folder):
    """Fetches the certificates of all machines."""
    folder.mkdir(parents=True, exist_ok=True)
    branch = Branch()
    for name in filter(CERTIFICATE.fullmatch, branch.names()):
        (folder / name).write_text(branch.read(name)[0])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["restore", folder]:
            restore(Path(folder))
        case ["publish", folder]:
            publish(Path(folder))
        case ["certify", *files] if files:
            certify(files)
        case _:
            sys.exit(__doc__)
