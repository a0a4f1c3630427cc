# SPDX-License-Identifier: Apache-2.0
"""Real identity providers for tests: ``oidc-provider-mock`` of PyPI, and ``oidc-provider`` of npm, which has the device flow."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx

from tests.support.house.checkout import ROOT
from tests.support.processes.ports import free_port

MODULES = Path(os.environ.get("PINQ_NODE_MODULES") or ROOT / "node_modules")
HAS_CODE_FLOW = find_spec("oidc_provider_mock") is not None
NO_CODE_FLOW = "NO IDENTITY PROVIDER: pip install oidc-provider-mock to test signing in"
NO_DEVICE_FLOW = (
    "NO DEVICE FLOW: npm install --prefix DIR oidc-provider, then PINQ_NODE_MODULES=DIR/node_modules, to test it"
)
HAS_DEVICE_FLOW = shutil.which("node") is not None and (MODULES / "oidc-provider").is_dir()

NODE = """
const { default: Provider } = await import(process.argv[1]);
const port = Number(process.argv[2]);
const device = 'urn:ietf:params:oauth:grant-type:device_code';
const client = {client_id: 'pinq', token_endpoint_auth_method: 'none', grant_types: [device, 'refresh_token'],
                redirect_uris: [], response_types: []};
const account = (id) => ({sub: id, email: `${id}@example.org`, email_verified: true, groups: id === 'ada' ? ['lab'] : []});
const provider = new Provider(`http://localhost:${port}`, {
  clients: [client],
  features: {deviceFlow: {enabled: true}, devInteractions: {enabled: true}},
  claims: {openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups']},
  conformIdTokenClaims: false,
  ttl: {IdToken: () => Number(process.argv[3])},
  findAccount: (_, id) => ({accountId: id, claims: () => account(id)}),
});
provider.listen(port, 'localhost');
"""


@contextmanager
def issuing(*people: dict[str, Any], seconds: int = 3600) -> Iterator[str]:
    """A provider of the code flow; returns its issuer."""
    port = free_port()
    users = [word for person in people for word in ("--user-claims", json.dumps(person))]
    words = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "-p", str(port), "-e", str(seconds), *users]
    with _running(words, f"http://127.0.0.1:{port}", {"AUTHLIB_INSECURE_TRANSPORT": "1"}) as issuer:
        yield issuer


@contextmanager
def issuing_to_devices(seconds: int = 3600) -> Iterator[str]:
    """A provider of the device flow; its ID tokens count for so long."""
    port, module = free_port(), (MODULES / "oidc-provider" / "lib" / "index.js").as_uri()
    words = ["node", "--input-type=module", "-e", NODE, module, str(port), str(seconds)]
    with _running(words, f"http://localhost:{port}", {}) as issuer:
        yield issuer


@contextmanager
def _running(words: list[str], issuer: str, environment: dict[str, str]) -> Iterator[str]:
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    try:
        for _ in range(1500):
            assert process.poll() is None, f"{words[0]} ended"
            try:
                if httpx.get(f"{issuer}/.well-known/openid-configuration", trust_env=False).is_success:
                    break
            except httpx.TransportError:
                time.sleep(0.02)
        yield issuer
    finally:
        process.kill()
        process.wait()


def id_token(issuer: str, person: str, client: str = "pinq") -> str:
    """Signs a person in by the code flow, as a browser would."""
    back = "http://127.0.0.1/back"
    words = {"client_id": client, "redirect_uri": back, "response_type": "code", "scope": "openid email groups"}
    with httpx.Client(trust_env=False) as browser:
        sent = browser.post(f"{issuer}/oauth2/authorize", params=words, data={"sub": person})
        (code,) = parse_qs(urlsplit(sent.headers["location"]).query)["code"]
        body = {"grant_type": "authorization_code", "code": code, "redirect_uri": back}
        token: str = browser.post(f"{issuer}/oauth2/token", data=body, auth=(client, "x")).json()["id_token"]
    return token


def enter(address: str, code: str, person: str) -> None:
    """Opens the address of a device flow in a browser, enters the code, signs in and consents."""
    with httpx.Client(follow_redirects=True, trust_env=False) as browser:
        page = browser.get(address)
        for _ in range(6):
            form = re.search(r"<form[^>]*action=\"([^\"]*)\".*?</form>", page.text, flags=re.DOTALL)
            if form is None:
                return
            fields = re.findall(r'<input[^>]*name="([^"]+)"(?:[^>]*value="([^"]*)")?', form[0])
            typed = {"user_code": code, "login": person, "password": "any"}
            filled = {name: typed.get(name) or value for name, value in fields if name != "abort"}
            page = browser.post(urljoin(str(page.url), form[1].replace("&amp;", "&")), data=filled)
