#!/usr/bin/env python3
"""Publishes what hotlap found in CI: in a comment on each pull request, and in a ledger.

    gate.py restore           fetches the certificates of all machines
    gate.py publish FOLDER    comments on a pull request, and adds a line to the ledger
    gate.py certify           stores this machine's certificate on the branch

All commands need GITHUB_REPOSITORY and GITHUB_TOKEN, and `publish` needs HEAD_SHA: the commit that
was measured. The branch is hotlap-ledger, unless LEDGER_BRANCH names another.

The folder of `publish` may come from a fork. So gate.py accepts only numbers as figures, treats the
report as text, and GitHub must confirm that the commit is the head of the pull request. What forks
measured is not part of the summary of earlier runs.
"""

import base64
import datetime
import json
import os
import random
import re
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

MARK = "<!-- hotlap -->"
# GitHub refuses comments of over 65,536 characters.
COMMENT_CHARS = 60_000
# GitHub's API returns files of up to 1 MB. A line takes about 300 bytes.
LEDGER_BYTES = 700_000
VERDICTS = {0: "passed", 4: "undecided", 5: "regression"}
CERTIFICATE = re.compile(r"certificate-[0-9a-f]{16}\.json")
README = """Written by hotlap's GitHub actions.

- `ledger.jsonl`: one line for each measured commit of a pull request.
- `certificate-*.json`: how small a difference each kind of runner can find.
"""


class Refused(Exception):
    """GitHub refused a request."""

    def __init__(self, status, text):
        super().__init__(f"GitHub refused the request with status {status}: {text[:300]}")
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
        """Returns the text of a file and its hash, or "" and None if there is no such file."""
        try:
            found = call("GET", f"contents/{path}?ref={self.name}")
        except Refused as why:
            if why.status == 404:
                return "", None
            raise
        if found["encoding"] != "base64":
            sys.exit(f"{path} on {self.name} is too large for GitHub's API")
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
        """Changes a file. Repeats the change if another job wrote to the branch in the meantime."""
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
                    time.sleep(random.uniform(0, 2 * attempt + 1))

    def create(self):
        """Creates the branch with a first commit of its own."""
        files = [{"path": "README.md", "mode": "100644", "type": "blob", "content": README}]
        tree = call("POST", "git/trees", {"tree": files})["sha"]
        first = {"message": "Create hotlap's ledger", "tree": tree, "parents": []}
        commit = call("POST", "git/commits", first)["sha"]
        try:
            call("POST", "git/refs", {"ref": f"refs/heads/{self.name}", "sha": commit})
        except Refused as why:
            # Another job has just created it.
            if why.status != 422:
                raise


def number(value, most):
    """Returns the value if it is a number from 0 to `most`, otherwise None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= most else None


def line(value):
    """Returns the letters, digits and harmless marks of a text, and at most 100 of them."""
    text = value if isinstance(value, str) else ""
    return re.sub(r"[^A-Za-z0-9 .,:()+_-]", "", text)[:100]


def exit_code(folder):
    """Returns the exit code of hotlap, or None if the job ended before hotlap did."""
    try:
        return int((folder / "exit").read_text())
    except (OSError, ValueError):
        return None


def run_of(folder):
    """Returns hotlap's JSON export, or an empty document if there is no valid export."""
    try:
        return json.loads((folder / "run.json").read_text())
    except (OSError, ValueError, RecursionError):
        return {}


def at(value, *keys):
    """Returns a value inside a document, or None."""
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def entry(run, exit_code, pull):
    """Returns the ledger's entry for a run."""
    rows = at(run, "tables", 0, "rows")
    heads = [row for row in rows if at(row, "name") == "head"] if isinstance(rows, list) else []
    ratio = at(heads, 0, "against", "cost", "ratio")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "pull": pull["number"],
        "commit": pull["head"]["sha"],
        "is_fork": at(pull, "head", "repo", "full_name") != os.environ["GITHUB_REPOSITORY"],
        "verdict": VERDICTS.get(exit_code, "failed"),
        "cost": [number(at(ratio, end), 1_000) for end in ("value", "low", "high")],
        "noise": number(at(run, "noise", "cost", "band"), 1),
        "cpu": line(at(run, "host", "machine", "cpu")),
        "hotlap": line(at(run, "run", "hotlap")),
    }


def past(ledger, own):
    """Returns what earlier runs on the same CPU model found, in words."""
    entries = [json.loads(text) for text in ledger.splitlines()]
    entries = [found for found in entries if not found["is_fork"]]
    alike = [found for found in entries if found["cpu"] == own["cpu"]]
    others = len(entries) - len(alike)
    if not own["cpu"]:
        return "The CPU model is unknown, so earlier runs are not summarised."
    said = f"Earlier runs on {own['cpu']}: "
    if alike:
        counts = [
            f"{sum(found['verdict'] == verdict for found in alike)} {verdict}"
            for verdict in ("passed", "regression", "undecided", "failed")
        ]
        said += ", ".join(counts)
        noise = sorted(found["noise"] for found in alike if found["noise"] is not None)
        if noise:
            said += f". Their noise floors are {100 * noise[0]:.1f}% to {100 * noise[-1]:.1f}%"
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
            if at(found, "user", "login") == own and found["body"].startswith(MARK):
                return call("PATCH", f"issues/comments/{found['id']}", {"body": body})
        if len(comments) < 100:
            break
    return call("POST", f"issues/{pull}/comments", {"body": body})


def report_of(folder):
    """Returns the report as the text of a comment that mentions nobody."""
    file = folder / "report.md"
    text = file.read_text(errors="replace") if file.exists() else ""
    # With a zero-width space after it, an `@` mentions nobody, even if it is written as `&#64;`.
    text = re.sub(r"@|&(?=#|commat)", lambda found: found[0] + "\u200b", text)
    if len(text) > COMMENT_CHARS:
        text = text[:COMMENT_CHARS].rpartition("\n")[0] + "\n\nThe report is cut off here. The artifact has the rest.\n"
    return text or "hotlap wrote no report. The log of the job says why.\n"


def publish(folder):
    """Comments on a pull request, and adds a line to the ledger."""
    pull = call("GET", f"pulls/{int((folder / 'number').read_text())}")
    if pull["head"]["sha"] != os.environ["HEAD_SHA"]:
        print(
            "Nothing was published, because the measured commit is not the head of pull request "
            f"{pull['number']}. A later push is measured in its own run."
        )
        return
    own, branch = entry(run_of(folder), exit_code(folder), pull), Branch()
    result = f"{own['commit'][:10]}, merged into its base: {own['verdict']}."
    said = [MARK, result, "", report_of(folder), past(branch.read("ledger.jsonl")[0], own)]
    comment(pull["number"], "\n".join(said) + "\n")

    def added(ledger):
        lines = [*ledger.splitlines(), json.dumps(own)]
        while sum(map(len, lines)) > LEDGER_BYTES:
            del lines[0]
        return "\n".join(lines) + "\n"

    branch.write("ledger.jsonl", added, f"Pull request {pull['number']}: {own['verdict']}")


def data():
    """Returns the folder in which hotlap keeps certificates."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(home) / "hotlap"


def certify():
    """Stores the certificates that were measured on this machine on the branch."""
    for file in filter(lambda file: CERTIFICATE.fullmatch(file.name), data().iterdir()):
        text = file.read_text()
        Branch().write(file.name, lambda _: text, f"Certificate of {file.stem[12:]}")


def restore():
    """Fetches the certificates of all machines."""
    data().mkdir(parents=True, exist_ok=True)
    branch = Branch()
    for name in filter(CERTIFICATE.fullmatch, branch.names()):
        (data() / name).write_text(branch.read(name)[0])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["restore"]:
            restore()
        case ["publish", folder]:
            publish(Path(folder))
        case ["certify"]:
            certify()
        case _:
            sys.exit(__doc__)
