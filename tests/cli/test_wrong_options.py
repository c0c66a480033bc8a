"""Options that cannot be used end with 2 or 6, naming option, value and remedy, and never with a traceback."""

from pathlib import Path

import pytest

from support.command_line import Run


@pytest.mark.parametrize(
    "arguments, want_code, want",
    [
        pytest.param(
            "operator run --redis localhost:6379",
            2,
            "--redis (AGENTRUN_OPERATOR_REDIS): 'localhost:6379' has no scheme that is known",
            id="redis without a scheme",
        ),
        pytest.param(
            "operator run --namespace Bad_Name",
            2,
            "--namespace (AGENTRUN_OPERATOR_NAMESPACES): 'Bad_Name' cannot be used: use lower-case letters",
            id="namespace",
        ),
        pytest.param("operator run --install A", 2, "--install (AGENTRUN_OPERATOR_INSTALL): 'A' cannot", id="install"),
        pytest.param("operator run --listen x", 2, "'x': must be HOST:PORT", id="listen"),
        pytest.param("operator run --log-level loud", 2, "'loud': must be 'debug', 'info'", id="log level"),
        pytest.param(
            "operator run --webhook-listen :1 --webhook-url http://x", 2, "'http://x' cannot be used: write", id="url"
        ),
        pytest.param("operator run --kubeconfig /nope", 6, "kubeconfig /nope, which is not there", id="no kubeconfig"),
        pytest.param("operator run --kubeconfig /tmp", 6, "kubeconfig /tmp: ", id="a folder for a kubeconfig"),
        pytest.param("operator run --kubeconfig hello.yaml", 6, "kubeconfig hello.yaml: ", id="no YAML of its kind"),
        pytest.param("operator run --kubeconfig text", 6, "text: is no kubeconfig", id="no kubeconfig at all"),
        pytest.param("local run hello.yaml --redis localhost:6379", 2, "--redis: 'localhost:6379' has no", id="local"),
        pytest.param("local run hello.yaml --script /nope", 2, "/nope:1: cannot be read: ", id="script"),
        pytest.param("init /dev/null", 2, "name a folder that can be written in", id="init into a file"),
    ],
)
def test_what_cannot_be_used_is_named(agentrun: Run, tmp_path: Path, arguments: str, want_code: int, want: str) -> None:
    agentrun("init")
    (tmp_path / "text").write_text("just a text\n")
    answer = agentrun(*arguments.split(), KUBECONFIG="")
    assert want in answer.stderr
    assert answer.returncode == want_code
    assert "Traceback" not in answer.stderr
