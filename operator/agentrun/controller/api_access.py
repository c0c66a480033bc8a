"""How the API server is reached and who we are there: from a kubeconfig, or as a pod's service account."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import kopf
import yaml  # type: ignore[import-untyped]
from kubernetes import client, config


class NoClusterError(Exception):
    """No API server is known; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """One API server and the identity we have there."""

    configuration: client.Configuration = field(repr=False)
    """As the Kubernetes client read it: it knows every kind of credential, and renews those that expire."""
    default_namespace: str = "default"
    """The namespace of the kubeconfig's context, or the pod's own."""

    @property
    def server(self) -> str:
        """Return the URL, without a slash at its end."""
        return str(self.configuration.host).rstrip("/")

    def authorization(self) -> str | None:
        """Return the value of the Authorization header, fresh, or None where a certificate says who we are."""
        for name in ("authorization", "BearerToken"):
            value = self.configuration.get_api_key_with_prefix(name)
            if value:
                return str(value)
        if self.configuration.username:
            return str(self.configuration.get_basic_auth_token())
        return None

    def build_ssl(self) -> ssl.SSLContext | bool:
        """Return how the server is checked and what certificate we show; False: plain HTTP or not checked."""
        if not self.server.startswith("https:"):
            return False
        found = self.configuration
        context = ssl.create_default_context(cafile=found.ssl_ca_cert or None)
        if not found.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if found.cert_file:
            context.load_cert_chain(found.cert_file, found.key_file)
        return context

    def for_kopf(self) -> kopf.ConnectionInfo:
        """Return the same in kopf's words."""
        found = self.configuration
        scheme, _, token = (self.authorization() or "").partition(" ")
        return kopf.ConnectionInfo(
            server=self.server,
            ca_path=found.ssl_ca_cert or None,
            insecure=not found.verify_ssl,
            scheme=scheme if token else None,
            token=token or None,
            certificate_path=found.cert_file or None,
            private_key_path=found.key_file or None,
            default_namespace=self.default_namespace,
        )


_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def load_access(kubeconfig: Path | None = None, context: str | None = None) -> ApiAccess:
    """Return the access that a kubeconfig gives (its ``context``, else the current one), or a pod's service account.

    Without a path: the service account inside a pod; elsewhere ``KUBECONFIG`` or ``~/.kube/config``, as kubectl does.
    Raises :class:`NoClusterError`.
    """
    found = client.Configuration()
    try:
        if kubeconfig is None and context is None and _NAMESPACE_FILE.is_file():
            config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
            return ApiAccess(found, _NAMESPACE_FILE.read_text().strip())
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=str(kubeconfig) if kubeconfig else None, context=context, client_configuration=found
        )
        contexts, current = config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
            str(kubeconfig) if kubeconfig else None
        )
    # The client library translates only some of what a file that is none makes it raise.
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        spoken = isinstance(error, (config.ConfigException, OSError))
        said = str(error) if spoken else f"is no kubeconfig ({type(error).__name__}: {error})"
        raise NoClusterError(
            f"no API server to talk to: kubeconfig {_name_of(kubeconfig)}: {' '.join(said.split())}; "
            "name a kubeconfig with --kubeconfig or the variable KUBECONFIG"
        ) from error
    chosen = next((known for known in contexts if known["name"] == context), current)
    return ApiAccess(found, chosen["context"].get("namespace") or "default")


def _name_of(kubeconfig: Path | None) -> str:
    if kubeconfig is None:
        return os.environ.get("KUBECONFIG") or "~/.kube/config"
    return str(kubeconfig) if kubeconfig.exists() else f"{kubeconfig}, which is not there"
