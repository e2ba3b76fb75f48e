"""What the official suite asks of a client, over our McpClient.

usage: python client.py URL     the scenario is in MCP_CONFORMANCE_SCENARIO, its facts in MCP_CONFORMANCE_CONTEXT
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.auth.utils import build_protected_resource_metadata_discovery_urls
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from callboard.mcp import McpClient, ServerSettings

BACK = "http://localhost:3000/callback"
METADATA = "https://conformance-test.local/client-metadata.json"
LEGACY = frozenset({"json-schema-ref-no-deref"})
"""Scenarios whose own server takes nothing but the handshake, whatever the revision."""
CALLS: Mapping[str, tuple[str, ...]] = {
    "elicitation-sep1034-client-defaults": ("test_client_elicitation_defaults",),
    "sse-retry": ("test_reconnection",),
    "sep-2322-client-request-state": (
        "test_mrtr_echo_state",
        "test_mrtr_unrelated",
        "test_mrtr_no_state",
        "test_mrtr_no_result_type",
    ),
}
SAMPLES = {"string": "x", "integer": 5, "number": 3, "boolean": False, "object": {}, "array": []}


class Kept:
    """The SDK's TokenStorage, in memory."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class Browser:
    """A person who agrees to everything."""

    def __init__(self) -> None:
        self._said: dict[str, list[str]] = {}

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient() as http:
            response = await http.get(url, follow_redirects=False)
        self._said = parse_qs(urlsplit(response.headers["location"]).query)

    async def come_back(self) -> AuthorizationCodeResult:
        said = {key: values[0] for key, values in self._said.items()}
        return AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss"))


async def authorization(scenario: str, url: str, facts: dict[str, Any]) -> httpx2.Auth:
    match scenario:
        case "auth/client-credentials-jwt":
            signed = SignedJWTParameters(
                issuer=facts["client_id"],
                subject=facts["client_id"],
                signing_algorithm=facts["signing_algorithm"],
                signing_key=facts["private_key_pem"],
            )
            asserted = signed.create_assertion_provider()
            return PrivateKeyJWTOAuthProvider(url, Kept(), facts["client_id"], asserted, issuer=await issuer_of(url))
        case "auth/client-credentials-basic":
            secret = facts["client_secret"]
            return ClientCredentialsOAuthProvider(url, Kept(), facts["client_id"], secret, issuer=await issuer_of(url))
        case "auth/enterprise-managed-authorization":
            return IdentityAssertionOAuthProvider(
                url,
                Kept(),
                facts["client_id"],
                facts["client_secret"],
                await issuer_of(url),
                lambda audience, resource: exchanged(facts, audience, resource),
                token_endpoint_auth_method="client_secret_basic",
            )
        case _:
            return by_code(url, facts)


def by_code(url: str, facts: dict[str, Any]) -> OAuthClientProvider:
    known = None
    if "client_id" in facts:
        secret = facts.get("client_secret")
        said = {"client_id": facts["client_id"], "client_secret": secret, "redirect_uris": [BACK]}
        method = "client_secret_basic" if secret else "none"
        known = OAuthClientInformationFull.model_validate(
            {**said, "token_endpoint_auth_method": method, "issuer": facts.get("issuer")}
        )
    browser = Browser()
    metadata = OAuthClientMetadata.model_validate({"client_name": "callboard", "redirect_uris": [BACK]})
    return OAuthClientProvider(
        url, metadata, Kept(known), browser.open, browser.come_back, client_metadata_url=METADATA
    )


async def issuer_of(url: str) -> str:
    """The authorization server, which users of these flows have configured."""
    async with httpx2.AsyncClient() as http:
        said = (await http.get(build_protected_resource_metadata_discovery_urls(None, url)[0])).json()
    return str(said["authorization_servers"][0])


async def exchanged(facts: dict[str, Any], audience: str, resource: str) -> str:
    """What an enterprise's identity provider gives for who is logged in there (RFC 8693)."""
    kind = "urn:ietf:params:oauth"
    form = {
        "grant_type": f"{kind}:grant-type:token-exchange",
        "requested_token_type": f"{kind}:token-type:id-jag",
        "subject_token": facts["idp_id_token"],
        "subject_token_type": f"{kind}:token-type:id_token",
        "audience": audience,
        "resource": resource,
        "client_id": facts["idp_client_id"],
    }
    async with httpx2.AsyncClient() as http:
        return str((await http.post(facts["idp_token_endpoint"], data=form)).json()["access_token"])


async def accept(_: str, schema: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Fills in what has no default."""
    fields = schema.get("properties", {})
    return "accept", {name: True for name, field in fields.items() if field == {"type": "boolean"}}


async def sample(_: Any) -> Any:
    raise NotImplementedError


async def run(scenario: str, url: str, facts: dict[str, Any]) -> None:
    auth = await authorization(scenario, url, facts) if scenario.startswith("auth/") else None
    protocol = "legacy" if scenario in LEGACY else "auto"
    settings = ServerSettings(name="suite", transport="http", url=url, protocol=protocol, sampling=True)
    client = McpClient(settings, auth=auth, elicit=accept, sample=sample)
    try:
        await client.start()
        tools = {tool.name: tool for tool in await client.tools()}
        calls = [(call["name"], call["arguments"]) for call in facts.get("toolCalls", ())]
        calls += [(name, {}) for name in CALLS.get(scenario, ())]
        if scenario == "json-schema-2020-12-preservation":
            calls.append(("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema}))
        if not calls and scenario not in LEGACY:
            calls = [(name, arguments_of(tool.input_schema)) for name, tool in tools.items()]
        for name, arguments in calls:
            await client.call(name, arguments)
        if scenario == "http-standard-headers":
            for resource in await client.resources():
                await client.read_resource(str(resource.uri))
            for prompt in await client.prompts():
                await client.get_prompt(prompt.name, {})
    finally:
        await client.aclose()


def arguments_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties", {})
    return {name: SAMPLES.get(fields[name].get("type"), "x") for name in schema.get("required", ()) if name in fields}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    wanted = os.environ["MCP_CONFORMANCE_SCENARIO"]
    asyncio.run(run(wanted, sys.argv[-1], json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")))
