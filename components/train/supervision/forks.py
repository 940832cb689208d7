"""When a job has a template to fork replicas from: after some training, or from the first failure on."""

from __future__ import annotations

import math
import os
import selectors
import time

from components.train.backends.plan import Plan
from components.train.supervision.reaper import MARK, Guard
from components.train.supervision.template import Template

_LOAD_S = 120.0


class Forks:
    """Makes the template of a job and asks it only when it can answer."""

    def __init__(self, plan: Plan, guard: Guard, selector: selectors.BaseSelector, after_s: float):
        """The template is made `after_s` after the first step, if the plan allows forks."""
        self._plan, self._guard, self._selector, self._after_s = plan, guard, selector, after_s
        self._template: Template | None = None
        self._at = self._give_up_at = math.inf

    def look(self, *, training: bool) -> None:
        """Makes it when the job has trained for long enough and still does."""
        if not training:
            return
        now = time.monotonic()
        self._at = min(self._at, now + self._after_s)
        if now >= self._at:
            self.make()

    def make(self) -> None:
        """Makes it now."""
        if self._template or not self._plan.forks:
            return
        environ = {**os.environ, "TMPDIR": self._guard.scratch, MARK: self._guard.mark("template", 0)}
        self._template = Template(environ, self._plan.replicas[0].command[2:])
        self._give_up_at = time.monotonic() + _LOAD_S
        self._selector.register(self._template, selectors.EVENT_READ, self._on_message)

    @property
    def loading(self) -> bool:
        """Whether it is worth waiting for."""
        template = self._template
        return bool(template) and not (template.ready or template.gone) and time.monotonic() < self._give_up_at

    @property
    def template(self) -> Template | None:
        """To fork from, if there is one."""
        return self._template if self._template and self._template.ready and not self._template.gone else None

    def close(self) -> None:
        """Ends it."""
        if self._template:
            self._template.close()

    def _on_message(self) -> None:
        self._template.read_waiting()
        if self._template.gone:
            self._selector.unregister(self._template)
