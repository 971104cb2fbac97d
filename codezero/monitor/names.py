"""A name for a peer id that a person can remember. 4,096 of them: enough to tell peers apart, no proof of identity."""

import hashlib

_ADJECTIVES = """
agile amber ample azure blithe bold brave bright brisk calm candid cheery clever cosmic crisp
curious daring deft eager earnest fair fancy fleet fluent fresh gentle gifted glad golden grand
happy hardy honest humble jolly keen kind lively loyal lucid lucky mellow merry mighty modest nimble
noble patient plucky polite proud quick quiet rapid royal serene sharp silver sturdy sunny swift
tidy vivid witty
"""
_ANIMALS = """
alpaca ant badger bat bear beaver bee bison camel cat cobra crab crane crow deer dingo dolphin dove
duck eagle eel falcon ferret finch fox frog gecko goat goose hare hawk hedgehog heron ibex jackal
jaguar koala lark lemur llama lynx magpie mole moose newt otter owl panda parrot pelican penguin
puma quail rabbit raven robin seal shrew sloth stork swan tapir tiger whale
"""
ADJECTIVES, ANIMALS = _ADJECTIVES.split(), _ANIMALS.split()


def readable_name(peer_id: str) -> str:
    """`adjective-animal`, the same for the same peer id on every machine."""
    digest = hashlib.sha256(peer_id.encode("utf-8", "replace")).digest()
    return f"{ADJECTIVES[digest[0] % len(ADJECTIVES)]}-{ANIMALS[digest[1] % len(ANIMALS)]}"
