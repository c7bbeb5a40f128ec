"""The examples, deployed and used as their READMEs say."""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path

import httpx
import pytest

from tests.support.embedded import Platform, User
from tests.support.tls_postgres import TlsPostgres

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def author(platform: Platform) -> User:
    """Who the command line acts for on this machine."""
    return platform.user("dev")


def deploy(platform: Platform, folder: str, *arguments: str, **environ: str) -> str:
    """Deploys an example; gives its URL."""
    done = platform.sless("deploy", str(EXAMPLES / folder), *arguments, environ=environ)
    return done.stdout.split()[-1]


@pytest.fixture(scope="module")
def calculator(platform: Platform) -> str:
    return deploy(platform, "calc-python")


class TestCalculator:
    def test_a_browser_gets_a_page_with_a_form(self, calculator: str) -> None:
        page = httpx.get(calculator)
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert '<form method="post">' in page.text

    @pytest.mark.parametrize(
        ("a", "op", "b", "result"),
        [
            ("1.5", "*", "4", "6"),
            ("0.1", "+", "0.2", "0.3"),
            ("1", "/", "8", "0.125"),
            ("5", "-", "7,5", "-2.5"),
            ("99999999999999999999", "+", "1", "100000000000000000000"),
        ],
    )
    def test_what_its_form_posts_is_computed(self, calculator: str, a: str, op: str, b: str, result: str) -> None:
        page = httpx.post(calculator, data={"a": a, "op": op, "b": b})
        assert page.status_code == 200
        assert f"<output>{result}</output>" in page.text
        assert f'value="{a}"' in page.text

    @pytest.mark.parametrize(("b", "said"), [("0", "divided by zero"), ("<b>", "&#x27;&lt;b&gt;&#x27; is no number")])
    def test_what_can_not_be_computed_is_said_on_the_page(self, calculator: str, b: str, said: str) -> None:
        page = httpx.post(calculator, data={"a": "1", "op": "/", "b": b})
        assert page.status_code == 400
        assert said in page.text
        assert "<b>" not in page.text


@pytest.fixture(scope="module")
def resizer(platform: Platform) -> str:
    return deploy(platform, "image-resize")


class TestImageResize:
    def test_an_image_comes_back_smaller_in_its_proportions(self, resizer: str) -> None:
        answer = httpx.post(f"{resizer}?width=20", content=png(80, 40), headers={"Content-Type": "image/png"})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "image/png"
        assert struct.unpack(">II", answer.content[16:24]) == (20, 10)

    def test_it_comes_in_the_format_asked_for(self, resizer: str) -> None:
        for form, begins in (("jpeg", b"\xff\xd8\xff"), ("webp", b"RIFF")):
            answer = httpx.post(f"{resizer}?format={form}", content=png(8, 8), headers={"Content-Type": "image/png"})
            assert (answer.status_code, answer.headers["content-type"]) == (200, f"image/{form}")
            assert answer.content.startswith(begins)

    def test_what_is_no_image_is_refused(self, resizer: str) -> None:
        answer = httpx.post(resizer, content=b"\xff\x01nothing", headers={"Content-Type": "image/png"})
        assert (answer.status_code, answer.json()) == (415, {"error": "the body is no image that can be read"})
        assert (
            httpx.post(f"{resizer}?width=0", content=png(2, 2), headers={"Content-Type": "image/png"}).status_code
            == 400
        )


@pytest.fixture(scope="module")
def notes(platform: Platform, tls_postgres: TlsPostgres) -> tuple[str, str]:
    def service(name: str, entrypoint: str) -> str:
        return deploy(
            platform, "notes-python", "--name", name, "--entrypoint", entrypoint,
            "--env", f"DATABASE_CA={tls_postgres.authority_pem}", "--secret", "DATABASE_URL",
            DATABASE_URL=tls_postgres.dsn,
        )  # fmt: skip

    return service("notes", "notes.handle"), service("notes-list", "notes_list.handle")


class TestNotes:
    def test_notes_are_added_changed_deleted_and_listed_newest_first(
        self, notes: tuple[str, str], tls_postgres: TlsPostgres
    ) -> None:
        writing, listing = notes
        first = httpx.post(f"{writing}/add", json={"title": "milk", "body": "two bottles"})
        second = httpx.post(f"{writing}/add", data={"title": "naïve 面包"})
        third = httpx.get(f"{writing}/add", params={"title": "by query"})
        assert [answer.status_code for answer in (first, second, third)] == [201, 201, 201]
        numbers = [answer.json()["id"] for answer in (first, second, third)]

        listed = httpx.get(listing, params={"limit": "3"}).json()["notes"]
        assert [note["id"] for note in listed] == numbers[::-1]
        assert listed[1]["title"] == "naïve 面包"

        changed = httpx.post(f"{writing}/update", params={"id": str(numbers[0]), "title": "oat milk"}).json()
        assert (changed["title"], changed["body"]) == ("oat milk", "two bottles")
        assert httpx.delete(f"{writing}/delete", params={"id": str(numbers[1])}).status_code == 200
        assert httpx.delete(f"{writing}/delete", params={"id": str(numbers[1])}).status_code == 404
        left = [note["id"] for note in httpx.get(listing).json()["notes"]]
        assert left[:2] == [numbers[2], numbers[0]]
        assert tls_postgres.sql(f"SELECT title FROM notes WHERE id = {numbers[0]}") == "oat milk"

    def test_the_connection_is_encrypted(self, notes: tuple[str, str], tls_postgres: TlsPostgres) -> None:
        assert httpx.get(notes[1]).status_code == 200
        seen = tls_postgres.sql(
            "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE client_addr IS NOT NULL"
        )
        assert seen == "t"

    @pytest.mark.parametrize(
        ("path", "status", "said"),
        [
            ("/add", 400, "title must be a text that is not empty"),
            ("/update?id=1", 400, "nothing to change: send title, body, or both"),
            ("/delete?id=x", 400, "id must be the number of a note, not 'x'"),
            ("/delete?id=999999", 404, "there is no note 999999"),
            ("/other", 404, "there is no /other: use /add, /update or /delete"),
        ],
    )
    def test_what_can_not_be_done_is_said(self, notes: tuple[str, str], path: str, status: int, said: str) -> None:
        answer = httpx.post(notes[0] + path)
        assert (answer.status_code, answer.json()["error"]) == (status, said)

    def test_both_share_one_layer_of_dependencies(self, notes: tuple[str, str], author: User) -> None:
        def layer(name: str) -> str:
            log = author.request("GET", f"/services/{name}/versions/1/build-log").text
            return str(re.findall(r"dependency layer (sha256:[0-9a-f]{64})", log)[0])

        assert layer("notes") == layer("notes-list")

    def test_the_secret_is_shown_nowhere(
        self, notes: tuple[str, str], platform: Platform, tls_postgres: TlsPostgres
    ) -> None:
        password = tls_postgres.dsn.split(":")[2].split("@")[0]
        got = platform.sless("service", "get", "notes", "--output", "json").stdout
        assert list(json.loads(got)["secret_env"]) == ["DATABASE_URL"]
        assert password not in got
        assert password not in platform.log()


def png(width: int, height: int) -> bytes:
    """A black image."""
    rows = b"".join(b"\x00" + bytes(3 * width) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
