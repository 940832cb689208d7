"""Accounts, and what they may do by bindings that a test brings, such as those of `deploy/setup`.

Each set of bindings has a name. A machine whose metadata server is `host(email, name)` gets that
host name for a token, which stands for the account under these bindings, as does all that it starts
as an account. Other tokens are the owner's, and may do everything.

Refusals have the words of Vertex AI and Cloud Storage, as in threads 1073 and 1880 of
googleapis/python-aiplatform and 575 of ansible-collections/google.cloud.
"""

import collections
import re

from google.api_core import exceptions

from tests.cloud.collection import require
from tests.deploy.calls import allows, permission

_DOMAIN = ".iam.gserviceaccount.com"


def host(email, bindings):
    """Name of the metadata server of machines that act as an account."""
    return f"{email.removesuffix(_DOMAIN).replace('@', '.')}.{bindings}.metadata"


def account(token):
    """Account of a token and name of its bindings; empty for a token that may do everything."""
    match = re.fullmatch(r"([^.]+)\.([^.]+)\.([^.]+)\.metadata", token)
    return (f"{match[1]}@{match[2]}{_DOMAIN}", match[3]) if match else ("", "")


def denied(wanted, resource=""):
    """Returns Google's words for a missing permission for a resource."""
    at = f" '//{wanted.partition('.')[0]}.googleapis.com/{resource}'" if resource else ""
    return f"Permission '{wanted}' denied on resource{at} (or it may not exist)."


class Iam:
    """All sets of bindings.

    Attributes:
      needs: By name of a set, account, permission, resource and first folder of the object of all
        that was allowed.
    """

    def __init__(self):
        self.needs = collections.defaultdict(set)
        self._sets = {}

    def set(self, name, bindings):
        """Puts bindings (resource, role, member, condition) in the place of this name's."""
        self._sets[name] = bindings
        with open("/etc/hosts", "a") as file:
            for member in {member for _, _, member, _ in bindings}:
                print("127.0.0.1", host(member.removeprefix("serviceAccount:"), name), file=file)

    def has(self, caller, wanted, resource, name=""):
        """Returns whether an account has a permission for a resource, or an object in a bucket."""
        email, bindings = caller
        if not bindings:
            return True
        is_allowed = allows(self._sets[bindings], email, wanted, resource, name)
        if is_allowed:
            self.needs[bindings].add((email, wanted, resource, name.partition("/")[0]))
        return is_allowed

    def allows(self, request, wanted, resource, name=""):
        """Returns whether the caller has a permission."""
        return self.has(self.caller(request), wanted, resource, name)

    def caller(self, request, email=""):
        """Returns account and name of bindings of a caller, or of an account in its place."""
        caller, bindings = account(request.headers.get("Authorization", "").removeprefix("Bearer "))
        return email or caller, bindings

    def require(self, request, wanted, resource, name="", shown=""):
        """Refuses a request of a caller without that permission; `shown` names the resource."""
        if self.allows(request, wanted, resource, name):
            return
        refusal = denied(wanted, shown or resource)
        if wanted.startswith("storage."):
            reason = f"{self.caller(request)[0]} does not have {wanted} access to the Google Cloud"
            refusal = f"{reason} Storage {'object' if name else 'bucket'}. {denied(wanted)}"
        raise exceptions.PermissionDenied(refusal)

    def require_call(self, request):
        """Refuses a call to a project without the permission that docs/PROJECT.md has for it."""
        wanted = permission(request.method, request.host, request.path)
        place = re.search('projects/[^/:?"]+', f"{request.path} {request.body!r}")[0]
        path = re.sub("^/v[^/]*/|:[^:]*$", "", request.path)
        # Who makes or lists resources needs the permission for what they are in.
        shown = path.rpartition("/")[0] if path.count("/") % 2 == 0 else path
        self.require(request, wanted, place, shown=shown)

    def start_as(self, request, email):
        """Returns the environment of a process that the caller starts as an account.

        Raises:
          InvalidArgument: The caller may not act as it; in Vertex AI's words.
        """
        may_act = self.allows(request, "iam.serviceAccounts.actAs", email)
        unlike = f"You do not have permission to act as service_account: {email}."
        require(may_act, f"{unlike} (or it may not exist).")
        _, bindings = self.caller(request)
        return {"GCE_METADATA_HOST": host(email, bindings)} if bindings else {}

    def policy(self, request, wanted, resource):
        """Returns a resource's policy, to callers with a permission."""
        self.require(request, wanted, resource)
        bindings = self._sets.get(self.caller(request)[1], ())
        own = [each for each in bindings if each[0] == resource]
        return {"bindings": [{"role": role, "members": [member]} for _, role, member, _ in own]}
