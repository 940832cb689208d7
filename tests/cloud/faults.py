"""Faults on request: rules that are matched against each request before it is answered."""

import dataclasses
import random
import re
import threading

from google.api_core import exceptions


class ResetError(Exception):
    """The connection is to be broken without an answer, or in the middle of this one."""

    def __init__(self, answer=None):
        self.answer = answer


@dataclasses.dataclass(kw_only=True)
class Fault:
    """One rule."""

    match: str  # regular expression that is looked for in `METHOD HOST/PATH?QUERY`
    status: int = 0  # that is answered in place of doing what is asked; 0 does it
    reset: bool = False  # the connection breaks in place of an answer, before anything is done
    cut: bool = False  # what is asked is done, and the connection breaks amid the answer
    late: int = 0  # code of google.rpc.Code with which the operation ends that the request begins
    retry_after_s: int = 0  # that the answer asks to wait
    share: float = 1.0  # of the requests that match, drawn with a fixed seed
    times: float = float("inf")  # that it happens at most

    def hits(self, request, chance):
        """Returns whether it happens to a request, and counts that."""
        hit = self.times > 0 and bool(re.search(self.match, request)) and chance < self.share
        self.times -= hit
        return hit


class Faults:
    """The rules that hold now, by name of who set them."""

    def __init__(self):
        self._rules = {}
        self._random, self._lock = random.Random(0), threading.Lock()

    def set(self, name, rules):
        """Puts rules in the place of those that were set under this name."""
        with self._lock:
            self._rules[name] = [Fault(**rule) for rule in rules]

    def meet(self, request):
        """Refuses or resets (`ResetError`) a request as the rules ask for.

        Returns:
          The other rules that hit it.
        """
        with self._lock:
            rules = [rule for rules in self._rules.values() for rule in rules]
            hits = [rule for rule in rules if rule.hits(request, self._random.random())]
        for rule in hits:
            if rule.reset:
                raise ResetError
            if rule.status:
                error = exceptions.from_http_status(rule.status, f"a fault of {rule.match}")
                error.retry_after_s = rule.retry_after_s
                raise error
        return hits
