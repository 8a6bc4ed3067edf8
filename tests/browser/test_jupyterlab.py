"""Where the Explorer plays: JupyterLab with widgets, offline, and the instruments that watch it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("host", ["example.org", "192.0.2.1"])
def test_a_request_to_another_machine_is_recorded_and_stopped(lab_page, host):
    """The proof that nothing is fetched is worth what its instrument is worth; a number needs no name server."""
    lab_page.open(["1"])
    address = f"http://{host}/x.js"
    failed = lab_page.page.evaluate("address => fetch(address).then(() => false, () => true)", address)

    assert failed
    assert [address] == lab_page.left_machine
    stopped = "net::ERR_NAME_NOT_RESOLVED"
    assert [True] == [stopped in error for error in lab_page.console_errors if address in error]
