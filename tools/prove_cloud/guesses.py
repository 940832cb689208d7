"""Tries the guesses that the tests' Vertex AI makes, with requests that break one each.

requests = Requests(session, "https://us-central1-aiplatform.googleapis.com", values)
try:
    requests.refusals()  # {"Model.container_spec": "List of found errors: ..."}
finally:
    requests.undo()
"""

import pathlib
import string
import sys
import time

import yaml
from google.auth.exceptions import GoogleAuthError

from tests.changed import changed

_RULES = pathlib.Path(__file__).parents[2] / "tests" / "cloud" / "rules.yaml"
_TABLES = yaml.safe_load(pathlib.Path(__file__).with_suffix(".yaml").read_text())
BODIES = _TABLES["guesses"]
# Of each guess, by field, what Vertex AI is said to ask for.
GUESSES = {
    f"{kind}.{rule['field']}": f"{rule['rule']} {rule.get('value', '')}".rstrip()
    for rule in yaml.safe_load(_RULES.read_text())["rules"]
    if rule.get("guess")
    for kind in rule["kind"].split()
}
WAIT_S, _LIMIT_S = 5, 300  # between two looks at an operation, and for it or a deletion


def values_for(args, name, number):
    """Returns what stands for the names of `guesses.yaml` that begin with `$`.

    Args:
      args: Arguments of the command line.
      name: Name of the directory in the bucket, and of what is made.
      number: Number of the project.
    """
    return {
        "NAME": name,
        "LONG": f"{name}-".ljust(140, "x"),
        "PLACE": f"{args.bucket}/{name}",
        "PROJECT": args.project,
        "NUMBER": number,
        "PARENT": f"projects/{args.project}/locations/{args.location}",
        "ELSEWHERE": "europe-west4" if args.location != "europe-west4" else "us-central1",
        "IMAGE": args.image,
        "ACCOUNT": args.service_account or f"{number}-compute@developer.gserviceaccount.com",
    }


class Requests:
    """Sends requests that break a guess each, and deletes what they create.

    Attributes:
      values: What stands for the names that begin with `$`.
      second: Answer to a second upload of a model's id.
      created: Names of all resources to delete.
    """

    def __init__(self, session, base, values):
        """`session` is one of `requests` with credentials, `base` Vertex AI's address."""
        self.values, self.second = values, "not looked at"
        self._session, self._url, self.created = session, f"{base}/v1", []

    def refusals(self):
        """Returns by field what Vertex AI answers to the request that breaks its rule."""
        for name, path in _TABLES["first"].items():
            if refused := self.send(path, _TABLES["valid"][path]):
                return dict.fromkeys(GUESSES, f"not looked at, as {path} was refused: {refused}")
            self.values[name] = self.created[-1]
        self.second = self.send("models:upload", _TABLES["valid"]["models:upload"]) or "was taken"
        return {
            field: self.send(about["path"], broken(field)) or "was taken, and undone"
            for field, about in BODIES.items()
        }

    def send(self, path, body):
        """Sends a request, and waits for its operation if it began one.

        Returns the message with which either was refused; empty if both succeeded.
        """
        body = yaml.safe_load(self._filled(yaml.safe_dump(body)))
        path = self._filled(path)
        parent = path if path.startswith("projects/") else f"{self.values['PARENT']}/{path}"
        answer = self._session.post(f"{self._url}/{parent}", json=body)
        about = answer.json()
        if answer.ok:
            self.created.append(about["name"].partition("/operations/")[0])
            about = self._ended(about)
        return " ".join(about.get("error", {}).get("message", "").split())

    def undo(self):
        """Deletes all that was created, and names what cannot be deleted."""
        while self.created:
            remove(self._session, f"{self._url}/{self.created.pop()}")

    def _filled(self, text):
        return string.Template(text).substitute(self.values)

    def _ended(self, about):
        """Returns an operation when it is done, or after five minutes; a resource as it is."""
        deadline = time.monotonic() + _LIMIT_S
        while "/operations/" in about["name"] and not about.get("done"):
            if time.monotonic() > deadline:
                return {"error": {"message": f"{about['name']} has not ended"}}
            time.sleep(WAIT_S)
            about = self._session.get(f"{self._url}/{about['name']}").json()
        return about


def broken(field):
    """Returns the request that breaks the rule of a field."""
    body = _TABLES["valid"][BODIES[field]["path"]]
    for place, value in BODIES[field]["put"].items():
        body = changed(body, place, value)
    return body


def remove(session, url):
    """Cancels and deletes a resource, which a job allows when it has ended; else names it."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        try:
            if "Jobs/" in url:
                session.post(f"{url}:cancel")  # Refused if it has ended.
            answer = session.delete(url)
            if answer.ok or answer.status_code == 404:
                return
            why = answer.text
        except (OSError, GoogleAuthError) as error:  # The rest is to be deleted all the same.
            why = error
        if time.monotonic() > deadline:
            print(f"left behind: {url} ({why})", file=sys.stderr)
            return
        time.sleep(WAIT_S)
