"""The two ceremonies of WebAuthn: a passkey is registered, and proves later that its owner is there.

The user is verified both times (finger, face or PIN). The relying party is the host of the page's origin: `localhost`,
which all servers on this machine share, so that the PRF is asked with a salt that only this node's owner is told.
"""

import socket
from typing import Any

import cbor2
import msgspec
import webauthn
from cryptography.exceptions import UnsupportedAlgorithm
from webauthn import helpers
from webauthn.helpers import structs
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.decoded_public_key_to_cryptography import decoded_public_key_to_cryptography
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.options_to_json_dict import options_to_json_dict

from codezero.errors import HttpRefusal
from codezero.login.vault import Passkey

VERIFIED = structs.UserVerificationRequirement.REQUIRED
ALGORITHMS = [
    COSEAlgorithmIdentifier.ECDSA_SHA_256,
    COSEAlgorithmIdentifier.EDDSA,
    COSEAlgorithmIdentifier.RSASSA_PKCS1_v1_5_SHA_256,
]
MALFORMED = (WebAuthnException, cbor2.CBORError, UnsupportedAlgorithm, ValueError, TypeError, LookupError,
             AttributeError, ArithmeticError, RecursionError)  # fmt: skip
"""What the library raises over bytes that no authenticator makes."""


def _asks_prf(salt: bytes) -> dict[str, Any]:
    return {"extensions": {"prf": {"eval": {"first": helpers.bytes_to_base64url(salt)}}}}


def creation_options(challenge: bytes, salt: bytes, origin: str) -> dict[str, Any]:
    """PublicKeyCredentialCreationOptionsJSON."""
    options = webauthn.generate_registration_options(
        rp_id=_party_of(origin),
        rp_name="CodeZero",
        user_name=f"CodeZero node on {socket.gethostname()[:64]}",
        challenge=challenge,
        attestation=structs.AttestationConveyancePreference.NONE,
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.PREFERRED, user_verification=VERIFIED
        ),
        supported_pub_key_algs=ALGORITHMS,
    )
    return options_to_json_dict(options) | _asks_prf(salt)


def _party_of(origin: str) -> str:
    return origin.partition("://")[2].partition(":")[0]


def request_options(challenge: bytes, passkey: Passkey, origin: str) -> dict[str, Any]:
    """PublicKeyCredentialRequestOptionsJSON. Raises HttpRefusal at another host than that of the passkey."""
    if passkey.relying_party != _party_of(origin):
        raise HttpRefusal(403, f"this node's passkey works at {passkey.relying_party} only; open the page there")
    options = webauthn.generate_authentication_options(
        rp_id=passkey.relying_party,
        challenge=challenge,
        allow_credentials=[structs.PublicKeyCredentialDescriptor(id=passkey.credential)],
        user_verification=VERIFIED,
    )
    return options_to_json_dict(options) | _asks_prf(passkey.salt)


def register(credential: dict[str, Any], challenge: bytes, origin: str, salt: bytes) -> Passkey:
    """credential: RegistrationResponseJSON, of any form. Raises HttpRefusal."""
    try:
        parsed = helpers.parse_registration_credential_json(credential)
        # who made the authenticator is not asked; some tell all the same, and nothing of it is parsed
        data: Any = cbor2.loads(parsed.response.attestation_object)["authData"]
        parsed.response.attestation_object = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        verified = webauthn.verify_registration_response(
            credential=parsed,
            expected_challenge=challenge,
            expected_rp_id=_party_of(origin),
            expected_origin=origin,
            require_user_verification=True,
            supported_pub_key_algs=ALGORITHMS,
        )
        decoded_public_key_to_cryptography(helpers.decode_credential_public_key(verified.credential_public_key))
        key = verified.credential_public_key
        passkey = Passkey(verified.credential_id, key, verified.sign_count, salt, _party_of(origin))
        msgspec.convert(msgspec.to_builtins(passkey), Passkey)  # within the bounds of the file
    except MALFORMED as error:
        raise _refused(error) from error
    if parsed.raw_id != passkey.credential:
        raise HttpRefusal(403, "the passkey was not accepted: it names itself differently twice")
    return passkey


def authenticate(credential: dict[str, Any], challenge: bytes, origin: str, passkey: Passkey) -> Passkey:
    """credential: AuthenticationResponseJSON, of any form. The passkey with its new sign count. Raises HttpRefusal."""
    try:
        parsed = helpers.parse_authentication_credential_json(credential)
        if parsed.raw_id != passkey.credential:
            raise HttpRefusal(403, "this is another passkey; use the one that claimed the node")
        verified = webauthn.verify_authentication_response(
            credential=parsed,
            expected_challenge=challenge,
            expected_rp_id=passkey.relying_party,
            expected_origin=origin,
            credential_public_key=passkey.public_key,
            credential_current_sign_count=passkey.sign_count,
            require_user_verification=True,
        )
    except MALFORMED as error:
        raise _refused(error) from error
    return msgspec.structs.replace(passkey, sign_count=verified.new_sign_count)


def _refused(error: Exception) -> HttpRefusal:
    """A sentence of the library says what is wrong; of anything else only that something is."""
    reason = str(error) if isinstance(error, WebAuthnException) else "it is malformed"
    return HttpRefusal(403, f"the passkey was not accepted: {reason}")
