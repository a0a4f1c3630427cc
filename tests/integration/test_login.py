# SPDX-License-Identifier: Apache-2.0
"""The provider's password and sessions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinq.errors import PolicyError, QueryError, TooManyRequests
from pinq.server.page import login
from pinq.server.page.login import (
    Login,
    Notice,
    Session,
    WrongPassword,
    hash_password,
    read_password_file,
    write_password_file,
)

PASSWORD = "correct horse battery"
HASHED = hash_password(PASSWORD)


class Clock:
    """Seconds that a test moves on."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def door(clock: Clock) -> Login:
    return Login(HASHED, clock)


def enter(door: Login, password: str = PASSWORD, address: str = "a") -> str:
    return asyncio.run(door.open(password, address))


def test_a_hash_says_nothing_and_fits_one_password(door: Login) -> None:
    """Salted: the same password twice is two hashes. Passwords in any script work."""
    assert PASSWORD not in HASHED
    assert hash_password(PASSWORD) != HASHED
    assert door.session(enter(door)) is not None
    for wrong in ("", PASSWORD[:-1], PASSWORD + "x", PASSWORD.title(), PASSWORD + "x" * 2000):
        with pytest.raises(WrongPassword):
            enter(door, wrong)
    assert enter(Login(hash_password("пароль из букв")), "пароль из букв")


@pytest.mark.parametrize("password", ["", "x" * 11, "x" * 1025])
def test_too_short_or_long(password: str) -> None:
    with pytest.raises(QueryError, match="12 to 1024"):
        hash_password(password)


def test_a_session_ends_when_idle_and_after_a_day_of_work(door: Login, clock: Clock) -> None:
    idle, used = enter(door), enter(door)
    for _ in range(30):
        clock.now += login.IDLE_SECONDS - 1
        if door.session(used) is None:
            break
    assert clock.now - 1000 == pytest.approx(login.SESSION_SECONDS, abs=login.IDLE_SECONDS)
    assert door.session(idle) is None
    clock.now += 1
    kept = enter(door)
    clock.now += login.IDLE_SECONDS + 1
    assert door.session(kept) is None


def test_only_its_own_cookie_opens_a_session(door: Login) -> None:
    cookie = enter(door)
    assert len(cookie) == 43
    assert cookie != enter(door)
    assert all(door.session(other) is None for other in ("", cookie[:-1], cookie + "x", cookie.swapcase()))
    door.close(cookie)
    assert door.session(cookie) is None


def test_sessions_fill_no_memory(door: Login) -> None:
    """The oldest gives way."""
    first = enter(door)
    for _ in range(login.MAX_SESSIONS):
        door._sessions[os.urandom(8).hex()] = Session(0, 0)
    enter(door)
    assert door.session(first) is None
    assert len(door._sessions) == login.MAX_SESSIONS


def test_guessing_is_slow(door: Login, clock: Clock) -> None:
    """Ten a minute from one address; others may go on, until all together made too many."""
    clock.now = 6000.0
    for _ in range(login.WRONG_A_MINUTE):
        with pytest.raises(WrongPassword):
            enter(door, "guess")
    with pytest.raises(TooManyRequests):
        enter(door)
    assert enter(door, address="b")
    clock.now += 60
    assert enter(door)


def test_guesses_at_the_same_time_count_each(door: Login) -> None:
    """Thirty at once get ten answers."""

    async def flood() -> list[object]:
        return await asyncio.gather(*(door.open("guess", "a") for _ in range(30)), return_exceptions=True)

    found = asyncio.run(flood())
    assert sum(isinstance(one, WrongPassword) for one in found) == login.WRONG_A_MINUTE
    assert sum(isinstance(one, TooManyRequests) for one in found) == 30 - login.WRONG_A_MINUTE


def test_a_form_acts_once_and_its_notice_is_read_once() -> None:
    session, acts = Session(0, 0), []

    def act() -> tuple[str, Notice]:
        acts.append(1)
        return "/there", Notice("done", token="pinq_x")

    assert [session.once("n", act) for _ in range(3)] == ["/there"] * 3
    assert acts == [1]
    assert session.notice("n") == Notice("done", token="pinq_x")
    assert session.notice("n") is None
    for number in range(2 * login.MAX_DONE):
        session.once(str(number), act)
    assert len(session.done) == len(session.notices) == login.MAX_DONE
    assert "pinq_x" not in repr(session)


def test_an_act_that_fails_may_be_tried_again() -> None:
    session = Session(0, 0)

    def fails() -> tuple[str, Notice]:
        raise QueryError("no")

    with pytest.raises(QueryError):
        session.once("n", fails)
    assert session.once("n", lambda: ("/there", Notice("done"))) == "/there"


def test_the_file(tmp_path: Path) -> None:
    """Private from its first byte, replaced whole, refused when others may read it or it is none."""
    file = tmp_path / "provider.password"
    old = os.umask(0)
    try:
        write_password_file(file, PASSWORD)
    finally:
        os.umask(old)
    assert file.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in file.read_text()
    assert enter(Login(read_password_file(file)))
    file.chmod(0o640)
    with pytest.raises(PolicyError, match=r"readable by others.*chmod 600"):
        read_password_file(file)
    for text in (PASSWORD, "", "scrypt$1$2", "md5$1$1$1$00$00", "scrypt$x$8$1$00$00"):
        file.write_text(text)
        file.chmod(0o600)
        with pytest.raises(PolicyError, match=r"is not a password file\. `pinq password"):
            read_password_file(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="cannot be read"):
        read_password_file(file)
    with pytest.raises(PolicyError, match="There is no password file"):
        read_password_file(tmp_path / "none")


def command(*words: object, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pinq.cli.main", *map(str, words)],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command(tmp_path: Path) -> None:
    """It takes a password from standard input, or makes one and prints it once; a short one is refused and changes nothing."""
    file = tmp_path / "p"
    done = command("password", file, typed=PASSWORD + "\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert "pinq serve ... --provider-page" in done.stderr
    assert enter(Login(read_password_file(file)))
    refused = command("password", file, typed="short\n")
    assert refused.returncode == 1
    assert "12 to 1024" in refused.stderr
    assert enter(Login(read_password_file(file)))
    made = command("password", file, "--generate")
    assert enter(Login(read_password_file(file)), made.stdout.strip())
    assert made.stdout.strip() not in made.stderr


def test_serving_with_a_wrong_file_is_refused_at_once(tmp_path: Path) -> None:
    done = command("serve", tmp_path / "none.yaml", "--insecure-http", "--provider-page", tmp_path / "none")
    assert done.returncode == 1
    assert "There is no password file" in done.stderr
