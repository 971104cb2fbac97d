"""An authenticator in software: ES256, no attestation, PRF as in WebAuthn level 3. It also errs when it is told to."""

import base64
import hashlib
import hmac
import json
import secrets
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40
Json = dict[str, Any]


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "===")


class Authenticator:
    """One passkey. Both ceremonies give the credential as JSON, and the PRF's secret as base64url."""

    def __init__(self) -> None:
        self.id = secrets.token_bytes(16)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.prf_key = secrets.token_bytes(32)
        self.count = 0
        self.flags = PRESENT | VERIFIED
        self.relying_party = "localhost"

    def secret(self, options: Json) -> str:
        """What the browser hands out as `prf.results.first`."""
        salt = decode(options["extensions"]["prf"]["eval"]["first"])
        asked = hashlib.sha256(b"WebAuthn PRF\x00" + salt).digest()
        return encode(hmac.digest(self.prf_key, asked, "sha256"))

    def create(self, options: Json, origin: str) -> tuple[Json, str]:
        point = self.key.public_key().public_numbers()
        cose = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")})
        attested = bytes(16) + len(self.id).to_bytes(2, "big") + self.id + cose
        said = {"fmt": "none", "attStmt": {}, "authData": self._data(ATTESTED) + attested}
        response = {
            "clientDataJSON": encode(client_data("webauthn.create", options["challenge"], origin)),
            "attestationObject": encode(cbor2.dumps(said)),
            "transports": ["internal"],
        }
        return self._credential(response), self.secret(options)

    def get(self, options: Json, origin: str) -> tuple[Json, str]:
        assert [one["id"] for one in options["allowCredentials"]] == [encode(self.id)]
        client, data = client_data("webauthn.get", options["challenge"], origin), self._data(0)
        signature = self.key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        response = {
            "clientDataJSON": encode(client),
            "authenticatorData": encode(data),
            "signature": encode(signature),
            "userHandle": None,
        }
        return self._credential(response), self.secret(options)

    def _data(self, flags: int) -> bytes:
        self.count += 1
        party = hashlib.sha256(self.relying_party.encode()).digest()
        return party + bytes([self.flags | flags]) + self.count.to_bytes(4, "big")

    def _credential(self, response: Json) -> Json:
        named = {"id": encode(self.id), "rawId": encode(self.id), "type": "public-key"}
        return named | {"response": response, "clientExtensionResults": {}, "authenticatorAttachment": "platform"}


def client_data(kind: str, challenge: str, origin: str) -> bytes:
    return json.dumps({"type": kind, "challenge": challenge, "origin": origin, "crossOrigin": False}).encode()
