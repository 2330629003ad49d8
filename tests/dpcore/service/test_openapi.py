"""Requests made up from the service's own description: none leads to an error of the server, and every answer is as described."""

import pytest
from hypothesis import HealthCheck, given, settings
from schemathesis import Case, GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from dpcore.session.session import Session
from tests.campaign import often
from tests.dpcore.service.conftest import HOST, Served

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
EXAMPLES = often(3, campaign=8)


def send_all(served: Served) -> int:
    """Send valid and invalid requests for every operation, and return how many there were."""
    schema = openapi.from_dict(served.client.request("GET", "/openapi.json").json())
    token = {"Authorization": f"Bearer {served.tokens['ada']}"}
    sent = 0
    for operation in schema.get_all_operations():
        for mode in GenerationMode:

            @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
            @given(case=operation.ok().as_strategy(generation_mode=mode))
            def send(case: Case) -> None:
                nonlocal sent
                sent += 1
                made = case.as_transport_kwargs(base_url=f"http://{HOST}")
                body = {name: made[name] for name in ("json", "data") if made.get(name) is not None}
                body = {"content": body["data"]} if "data" in body else body
                headers = {**made["headers"], **token, "User-Agent": "test"}
                headers = {name: value for name, value in headers.items() if str(value).isascii()}
                case.validate_response(
                    served.client.request(made["method"], case.formatted_path, headers=headers, **body), checks=CHECKS
                )

            send()
    return sent


@pytest.mark.campaign
def test_no_request_leads_to_an_error_of_the_server(served: Served) -> None:
    assert send_all(served) > 20


def test_an_error_of_the_server_would_be_found(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Session, "price", fails)
    with pytest.raises(BaseException, match="Server error"):
        send_all(served)
