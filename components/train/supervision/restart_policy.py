"""What follows from a replica's death: who is to blame, who starts again, and when it is enough.

    state, order = decide(state, Death(replica="worker/0", exit_code=137))  # order.stop is Stop.ALL
    state, order = decide(state, Gone(replica="chief/0", last=True))  # order.start is ("chief/0", "worker/0")

To obey its orders is the matter of `supervisor`. What holds for every back end is in `backends.restarts`.
A death after a signal of ours is never to blame: whoever is told to stop may answer as it likes. An evaluator only reads
checkpoints: it starts again alone, has budgets of its own, and its failures never end the job.
"""

import dataclasses
import enum
import signal
from collections.abc import Mapping
from typing import Self

from components.train.backends.restarts import (
    FAILS_AGAIN,
    FRUITLESS,
    NO_PROGRESS,
    SAVED,
    Kind,
    kind_of,
    no_restart_left,
)

FROZEN = 128 + signal.SIGKILL
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 5.0


class Stop(enum.Enum):
    """Whom to stop, of those that run."""

    NOBODY = enum.auto()
    ALL = enum.auto()
    ALL_SAVING = enum.auto()  # With the time that saving takes.
    SERVING = enum.auto()  # The chief is done: others have to end by themselves, or only serve it.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Death:
    """The end of a replica, or that it is taken for frozen."""

    replica: str  # Its name, `worker/1`.
    exit_code: int  # As a shell has it; 128+n also if the replica runs elsewhere and its client tells of signal n so.
    frozen: str = ""  # Why it is taken for frozen, if it is; it may still have to be killed.
    told: bool = False  # Whether a signal of ours came before.
    # Another one that is stopped (SIGSTOP): those that compute with it give up before its time is over.
    stopped: str = ""

    @property
    def kind(self) -> Kind:
        """What it was."""
        return Kind.ERROR if self.frozen else kind_of(self.exit_code)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gone:
    """Nothing is left of a replica that died; `last` if that is so of all."""

    replica: str
    last: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """Restarts after errors and, counted apart, after preemptions, as far as they are used."""

    errors: int = 0
    preemptions: int = 0
    fruitless: int = 0  # Failures in a row without a new step.
    step: int | None = None  # The highest that was told of, or None.
    before: int = 0  # What that was at the failure before, or where the job resumed.

    @property
    def backoff_s(self) -> float:
        """To wait before the next start: nothing while the job gets on."""
        return min(_LONGEST_BACKOFF_S, _BACKOFF_S * (2**self.fruitless - 1))

    def noted(self, step: int) -> Self:
        """The same, at this step or a higher one."""
        if self.step is None:
            return dataclasses.replace(self, step=step, before=step)
        return dataclasses.replace(self, step=step) if step > self.step else self

    def charged(self, death: Death, max_restarts: int, *, tells: bool) -> tuple[Self, str]:
        """The budget after this death, and why nobody can start again, if so."""
        if death.kind is Kind.USER_ERROR:
            return self, FAILS_AGAIN
        # Those who save and leave do as they were told; a program that never tells of steps is believed to get on.
        failed = int(death.exit_code != SAVED)
        fruitless = self.fruitless + failed
        if (self.step or 0) > self.before or (self.step is None and not tells):
            fruitless = 0
        after = dataclasses.replace(self, fruitless=fruitless, before=self.step or 0)
        if fruitless >= FRUITLESS:
            return after, NO_PROGRESS
        count = f"{death.kind}s"
        used = getattr(self, count)
        if why := no_restart_left(death.kind, used, max_restarts):
            return after, why
        return dataclasses.replace(after, **{count: used + 1}), ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """What was decided so far, and by what that is decided."""

    names: tuple[str, ...]  # Of all replicas that may start again.
    strategy: str  # Of the job.
    max_restarts: int  # Bound on each count of a budget.
    tells: bool  # Whether the program is known to tell of its steps.
    over: bool = False  # Whether nobody is to be started again.
    blame: Death | None = None  # Because of which all are being stopped, to start again or to end.
    # Deaths of those that start again alone, by name.
    lone: Mapping[str, Death] = dataclasses.field(default_factory=dict)
    job: Budget = Budget()  # Budget of all but the evaluator, which has its own.
    evaluator: Budget = Budget()

    def noted(self, name: str, step: int | None) -> Self:
        """The same after a replica has told of its step, if it has."""
        owner = _owner(name)
        budget = getattr(self, owner)
        after = budget if step is None else budget.noted(step)
        return self if after is budget else dataclasses.replace(self, **{owner: after})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be done."""

    stop: Stop = Stop.NOBODY  # Whom to stop.
    kill: Death | None = None  # The frozen one to kill at once.
    answered: Death | None = None  # The death that is to blame for what follows.
    budget: Budget = Budget()  # That it was charged to.
    start: tuple[str, ...] = ()  # Who starts again.
    why: str = ""  # Why nobody does, if so: the job ends if it is `over`, else it goes on without the one that died.


def decide(state: State, news: Death | Gone) -> tuple[State, Order]:
    """What follows from the news: at a death, who is stopped; once nothing is left of the dead, who starts again."""
    if state.over:
        return state, Order()
    return _gone(state, news) if isinstance(news, Gone) else _died(state, news)


def _died(state: State, death: Death) -> tuple[State, Order]:
    role, evaluates = death.replica.partition("/")[0], _owner(death.replica) == "evaluator"
    if death.told:
        return state, Order()
    if state.blame:
        # The client of a replica elsewhere may tell of a kill later than others of what that did to them.
        late = death.kind is Kind.PREEMPTION and death.exit_code != SAVED and state.blame.kind is Kind.ERROR
        if late and not state.blame.frozen and not evaluates:
            state = dataclasses.replace(state, blame=death)
        return state, Order()
    if death.exit_code == 0:
        done = role == "chief"
        return dataclasses.replace(state, over=done), Order(stop=Stop.SERVING if done else Stop.NOBODY)
    # Under parameter servers the chief gives a dead worker's work to others until it is back; but one that leaves with
    # 143 has had the whole job save and leave.
    if evaluates or (state.strategy == "parameter_server" and role == "worker" and death.exit_code != SAVED):
        lone = {**state.lone, death.replica: death}
        return dataclasses.replace(state, lone=lone), Order(kill=death if death.frozen else None)
    if death.stopped and death.kind is Kind.ERROR and not death.frozen:
        death = Death(replica=death.stopped, exit_code=FROZEN, frozen="stopped")
    stop = Stop.ALL_SAVING if death.exit_code == SAVED else Stop.ALL
    return dataclasses.replace(state, blame=death), Order(stop=stop, kill=death if death.frozen else None)


def _gone(state: State, gone: Gone) -> tuple[State, Order]:
    if state.blame:
        if not gone.last:
            return state, Order()
        return _charge(dataclasses.replace(state, blame=None, lone={}), state.blame, state.names)
    if not (death := state.lone.get(gone.replica)):
        return state, Order()
    lone = {name: other for name, other in state.lone.items() if name != gone.replica}
    return _charge(dataclasses.replace(state, lone=lone), death, (gone.replica,))


def _charge(state: State, death: Death, names: tuple[str, ...]) -> tuple[State, Order]:
    owner = _owner(death.replica)
    budget, why = getattr(state, owner).charged(death, state.max_restarts, tells=state.tells)
    state = dataclasses.replace(state, **{owner: budget})
    if not why:
        return state, Order(answered=death, budget=budget, start=names)
    if owner == "evaluator":
        left = tuple(name for name in state.names if name != death.replica)
        return dataclasses.replace(state, names=left), Order(answered=death, budget=budget, why=why)
    return dataclasses.replace(state, over=True), Order(stop=Stop.ALL, answered=death, budget=budget, why=why)


def _owner(name: str) -> str:
    """Whose budget a replica's death is charged to: the field of `State`."""
    return "evaluator" if name.startswith("evaluator/") else "job"
