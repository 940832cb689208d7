"""Accounts, and what they may do by bindings that a test brings, such as those of `deploy/setup`.

Each set of bindings has a name. A machine whose metadata server is `host(email, name)` gets that
host name for a token, which stands for the account under these bindings, as does all that it starts
as an account. Other tokens may do everything.
"""

import re

from google.api_core import exceptions

from tests.cloud.collection import require
from tests.deploy.calls import ROLES, permission

_DOMAIN = ".iam.gserviceaccount.com"
_EXCEPT = re.compile(r'!resource\.name\.startsWith\("([^"]+)"\)')


def host(email, bindings):
    """Name of the metadata server of machines that act as an account."""
    return f"{email.removesuffix(_DOMAIN).replace('@', '.')}.{bindings}.metadata"


def account(token):
    """Account of a token and name of its bindings; empty for a token that may do everything."""
    match = re.fullmatch(r"([^.]+)\.([^.]+)\.([^.]+)\.metadata", token)
    return (f"{match[1]}@{match[2]}{_DOMAIN}", match[3]) if match else ("", "")


class Iam:
    """All sets of bindings."""

    def __init__(self):
        self._sets = {}

    def set(self, name, bindings):
        """Puts bindings (resource, role, member, condition) in the place of this name's."""
        self._sets[name] = bindings
        with open("/etc/hosts", "a") as file:
            for _, _, member, _ in bindings:
                print("127.0.0.1", host(member.removeprefix("serviceAccount:"), name), file=file)

    def allows(self, request, wanted, resource, name=""):
        """Returns whether the caller has a permission for a resource, or an object in a bucket."""
        email, bindings = _caller(request)
        path = f"projects/_/buckets/{resource.removeprefix('gs://')}/objects/{name}"
        return not bindings or any(
            (bound, member) == (resource, f"serviceAccount:{email}")
            and wanted in ROLES[role.removeprefix("roles/")]
            and _holds(condition, path)
            for bound, role, member, condition in self._sets[bindings]
        )

    def require(self, request, wanted, resource, name=""):
        """Refuses a request of a caller without that permission."""
        if not self.allows(request, wanted, resource, name):
            email, _ = _caller(request)
            raise exceptions.PermissionDenied(
                f"{email} does not have {wanted} access to {resource}"
            )

    def require_call(self, request):
        """Refuses a call to a project without the permission that docs/PROJECT.md has for it."""
        wanted = permission(request.method, request.host, request.path)
        self.require(request, wanted, re.search("projects/[^/:]+", request.path)[0])

    def start_as(self, request, email):
        """Returns the environment of a process that the caller starts as an account.

        Raises:
          InvalidArgument: The caller may not act as it; in Vertex AI's words.
        """
        may_act = self.allows(request, "iam.serviceAccounts.actAs", email)
        require(may_act, f"You do not have permission to act as service_account: {email}.")
        _, bindings = _caller(request)
        return {"GCE_METADATA_HOST": host(email, bindings)} if bindings else {}

    def policy(self, request, wanted, resource):
        """Returns a resource's policy, to callers with a permission and bindings."""
        self.require(request, wanted, resource)
        if not (bindings := _caller(request)[1]):
            raise exceptions.PermissionDenied(resource)
        own = [each for each in self._sets[bindings] if each[0] == resource]
        return {"bindings": [{"role": role, "members": [member]} for _, role, member, _ in own]}


def _caller(request):
    return account(request.headers.get("Authorization", "").removeprefix("Bearer "))


def _holds(condition, name):
    """Returns whether a condition holds for a name; it may only exclude prefixes."""
    expression = condition.removeprefix("expression=").partition(",title=")[0]
    assert not _EXCEPT.sub("", expression).replace(" && ", ""), f"condition {condition}"
    return not name.startswith(tuple(_EXCEPT.findall(expression)))
