"""Accounts, and what they may do by the bindings that a test brings, such as those of `deploy/setup`.

Each set of bindings has a name. A machine whose metadata server is `host(email, name)` gets that
host name for a token, which stands for the account under these bindings, as does all that it starts
as an account. Other tokens may do everything.
"""

import re

from google.api_core import exceptions

from tests.cloud.front import Request
from tests.deploy.calls import ROLES, permission

_DOMAIN = ".iam.gserviceaccount.com"
_EXCEPT = re.compile(r'!resource\.name\.startsWith\("([^"]+)"\)')


def host(email: str, bindings: str) -> str:
    """Name of the metadata server of machines that act as an account."""
    return f"{email.removesuffix(_DOMAIN).replace('@', '.')}.{bindings}.metadata"


def account(token: str) -> tuple[str, str]:
    """The account that a token stands for, and the name of its bindings; empty of a token that may do everything."""
    match = re.fullmatch(r"([^.]+)\.([^.]+)\.([^.]+)\.metadata", token)
    return (f"{match[1]}@{match[2]}{_DOMAIN}", match[3]) if match else ("", "")


class Iam:
    """All sets of bindings."""

    def __init__(self) -> None:
        self._sets: dict[str, list[tuple[str, str, str, str]]] = {}

    def set(self, name: str, bindings: list[tuple[str, str, str, str]]) -> None:
        """Puts bindings, each a resource, role, member and condition, in the place of those of this name."""
        self._sets[name] = bindings
        with open("/etc/hosts", "a") as file:
            file.writelines(
                f"127.0.0.1 {host(each[2].removeprefix('serviceAccount:'), name)}\n"
                for each in bindings
            )

    def allows(self, request: Request, wanted: str, resource: str, name: str = "") -> bool:
        """Returns whether the caller has a permission for a resource, or for an object in a bucket."""
        email, bindings = _caller(request)
        full = f"projects/_/buckets/{resource.removeprefix('gs://')}" + (
            f"/objects/{name}" if name else ""
        )
        return not bindings or any(
            (bound, member) == (resource, f"serviceAccount:{email}")
            and wanted in ROLES[role.removeprefix("roles/")]
            and _holds(condition, full)
            for bound, role, member, condition in self._sets[bindings]
        )

    def require(self, request: Request, wanted: str, resource: str, name: str = "") -> None:
        """Refuses a request of a caller without that permission."""
        if not self.allows(request, wanted, resource, name):
            email, _ = _caller(request)
            raise exceptions.PermissionDenied(
                f"{email} does not have {wanted} access to {resource} (or it may not exist)."
            )

    def require_call(self, request: Request) -> None:
        """Refuses a call to a project without the permission that docs/PROJECT.md has for it."""
        wanted = permission(request.method, request.host, request.path)
        self.require(request, wanted, re.search("projects/[^/:]+", request.path)[0])

    def start_as(self, request: Request, email: str) -> dict[str, str]:
        """Returns the environment of a process that the caller starts as an account.

        Raises:
          InvalidArgument: The caller may not act as it; in Vertex AI's words.
        """
        if not self.allows(request, "iam.serviceAccounts.actAs", email):
            raise exceptions.InvalidArgument(
                f"You do not have permission to act as service_account: {email}. (or it may not "
                "exist)."
            )
        _, bindings = _caller(request)
        return {"GCE_METADATA_HOST": host(email, bindings)} if bindings else {}

    def policy(
        self, request: Request, wanted: str, resource: str
    ) -> dict[str, list[dict[str, object]]]:
        """Returns the policy of a resource as the API does, to callers with a permission and bindings."""
        self.require(request, wanted, resource)
        if not (bindings := _caller(request)[1]):
            raise exceptions.PermissionDenied(resource)
        own = [each for each in self._sets[bindings] if each[0] == resource]
        return {"bindings": [{"role": role, "members": [member]} for _, role, member, _ in own]}


def _caller(request: Request) -> tuple[str, str]:
    return account(request.headers.get("Authorization", "").removeprefix("Bearer "))


def _holds(condition: str, name: str) -> bool:
    """Returns whether a condition holds for a name; it may only exclude prefixes."""
    expression = condition.removeprefix("expression=").partition(",title=")[0]
    assert not _EXCEPT.sub("", expression).replace(" && ", ""), f"condition {condition}"
    return not name.startswith(tuple(_EXCEPT.findall(expression)))
