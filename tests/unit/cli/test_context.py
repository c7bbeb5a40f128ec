"""Which platform the commands talk to."""

from __future__ import annotations

from pathlib import Path

import pytest
from sless_cli.context import Context, config_file, load_context, save_context
from sless_cli.errors import NotAllowed, UsageFault

HERE = Context(endpoint="http://127.0.0.1:9090", token='to"ken\\', data_dir="/data/ü")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose configuration lies in the test's folder."""
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_what_is_saved_is_loaded_and_private(environ: dict[str, str]) -> None:
    save_context(HERE, environ)

    assert load_context(environ) == HERE
    assert config_file(environ).stat().st_mode & 0o777 == 0o600


def test_the_environment_wins(environ: dict[str, str]) -> None:
    save_context(HERE, environ)

    other = load_context({**environ, "SLESS_ENDPOINT": "https://there/", "SLESS_API_TOKEN": "t"})

    assert other == Context(endpoint="https://there", token="t")
    assert load_context({**environ, "SLESS_API_TOKEN": "t"}).token == "t"


def test_a_stored_token_goes_to_no_other_endpoint(environ: dict[str, str]) -> None:
    save_context(HERE, environ)

    with pytest.raises(NotAllowed, match="SLESS_API_TOKEN"):
        load_context({**environ, "SLESS_ENDPOINT": "https://there"})
    assert load_context({**environ, "SLESS_ENDPOINT": HERE.endpoint + "/"}) == HERE


def test_without_a_context_it_is_said_how_to_get_one(environ: dict[str, str]) -> None:
    with pytest.raises(UsageFault, match="sless up"):
        load_context(environ)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9090", "ftp://x"])
def test_an_endpoint_must_be_a_url(endpoint: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageFault, match="http"):
        load_context({**environ, "SLESS_ENDPOINT": endpoint, "SLESS_API_TOKEN": "t"})


def test_a_broken_file_is_named(environ: dict[str, str]) -> None:
    save_context(HERE, environ)
    config_file(environ).write_text("endpoint = ")

    with pytest.raises(UsageFault, match=r"config\.toml"):
        load_context(environ)


def test_the_token_is_not_in_its_representation() -> None:
    assert HERE.token not in repr(HERE)
