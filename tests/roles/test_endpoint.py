"""The endpoint's client against a real server on this machine, which answers as a script says."""

import asyncio
import importlib
import sys

import pytest

from spade_jax.config import EndpointConfig
from spade_jax.errors import ConfigError, EndpointError
from spade_jax.roles import endpoint as endpoint_module
from spade_jax.roles.endpoint import Endpoint
from spade_jax.text.chat import Message
from tests.chat_server import Server, completion

QUESTION = [Message(role="system", content="be brief"), Message(role="user", content="a hint?")]
KEY = "a-key-of-the-tests"


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setenv("SPADE_TEST_KEY", KEY)
    monkeypatch.setattr(endpoint_module, "PAUSE_SECONDS", 0.001)
    servers = []

    def start(*script):
        servers.append(Server(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def config_for(url, **fields):
    return EndpointConfig(
        **{"base_url": url, "model": "tiny-1", "api_key_variable": "SPADE_TEST_KEY", "timeout": 20.0} | fields
    )


def ask(url, *, times=1, **fields):
    async def run():
        async with Endpoint(config_for(url, **fields)) as endpoint:
            return await asyncio.gather(
                *(endpoint.ask(QUESTION, max_tokens=30, temperature=0.25) for _ in range(times))
            )

    return asyncio.run(run())


def error_of(url, **fields):
    with pytest.raises(EndpointError) as caught:
        ask(url, **fields)
    message = str(caught.value)
    assert url in message
    assert "tiny-1" in message
    assert KEY not in message
    return message


def test_the_question_arrives_and_the_answer_comes_back(serve):
    server = serve(completion("Look left.\n"))
    assert ask(server.url) == ["Look left.\n"]
    [(path, authorization, body)] = server.requests
    assert (path, authorization) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert body == {
        "model": "tiny-1",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "a hint?"}],
        "max_completion_tokens": 30,
        "temperature": 0.25,
    }


@pytest.mark.parametrize("status", [500, 503, 429])
def test_what_may_pass_is_tried_again(serve, status):
    server = serve((status, {"error": {"message": "busy"}}), completion("Look left."))
    assert ask(server.url) == ["Look left."]
    assert len(server.requests) == 2


def test_a_server_that_keeps_failing_is_given_up(serve):
    server = serve((500, {"error": {"message": "out of memory"}}))
    message = error_of(server.url, max_retries=1)
    assert "status 500" in message
    assert "out of memory" in message
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "SPADE_TEST_KEY"), (403, "SPADE_TEST_KEY"), (404, "endpoint.model"), (400, "its message says")],
)
def test_a_refusal_is_not_tried_again_and_says_what_to_do(serve, status, advice):
    server = serve((status, {"error": {"message": "no such thing"}}), completion("too late"))
    message = error_of(server.url)
    assert f"status {status}" in message
    assert "no such thing" in message
    assert advice in message
    assert len(server.requests) == 1


@pytest.mark.parametrize("empty", ["", " \n", None])
def test_an_empty_completion_is_tried_again(serve, empty):
    server = serve(completion(empty), completion(empty), completion("Look left."))
    assert ask(server.url) == ["Look left."]
    assert len(server.requests) == 3


def test_completions_that_stay_empty_are_an_error(serve):
    server = serve(completion("", finish_reason="length"))
    message = error_of(server.url, max_retries=1)
    assert "empty in 2 tries (length)" in message
    assert "max_tokens=30" in message
    assert len(server.requests) == 2


def test_a_completion_without_choices_is_empty(serve):
    status, nothing = completion("")
    server = serve((status, nothing | {"choices": []}))
    assert "no choice" in error_of(server.url, max_retries=0)


def test_an_answer_that_comes_too_late_is_an_error(serve):
    server = serve(completion("Look left."))
    server.delay = 0.5
    assert "within 0.1 s; raise endpoint.timeout" in error_of(server.url, timeout=0.1, max_retries=0)


@pytest.mark.parametrize("answer", ["<html>a page</html>", "{not json"])
def test_a_page_instead_of_an_answer_is_an_error(serve, answer):
    server = serve((200, answer))
    assert "where the API starts" in error_of(server.url)


def test_a_server_that_is_not_there_is_an_error(serve):
    server = serve(completion("Look left."))
    server.close()
    assert "no connection" in error_of(server.url, max_retries=0)


def test_only_so_many_questions_are_on_their_way_at_once(serve, monkeypatch):
    monkeypatch.setattr(endpoint_module, "MAX_CONCURRENT", 3)
    server = serve(completion("Look left."))
    server.delay = 0.05
    assert ask(server.url, times=9) == ["Look left."] * 9
    assert server.most_at_once == 3


def test_a_missing_key_names_its_variable(monkeypatch):
    monkeypatch.delenv("SPADE_TEST_KEY", raising=False)
    assert "SPADE_TEST_KEY is not set" in error_of("http://localhost:1/v1")


@pytest.mark.parametrize("missing", [{"base_url": ""}, {"model": ""}])
def test_an_endpoint_without_address_or_model_is_an_error(missing):
    with pytest.raises(ConfigError, match=r"endpoint\.base_url=.*endpoint\.model="):
        Endpoint(config_for("http://localhost:1/v1", **missing))


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "spade_jax.roles.endpoint")
    with pytest.raises(EndpointError, match=r"pip install 'spade_jax\[endpoint\]'"):
        importlib.import_module("spade_jax.roles.endpoint")
