import { expect, test } from "vitest";

import { inWords, Refused, Unreachable } from "../src/api/http";
import { groupedCode } from "../src/login/claim";
import { weakness } from "../src/login/passphrase";

test("a code is grouped however it is typed", () => {
  expect(["12345678", " 1234 5678", "1234-5678", "1234", "123456789"].map(groupedCode)).toEqual(["1234-5678", "1234-5678", "1234-5678", "1234", "1234-5678"]);
});

test("a passphrase is long enough, not too long, and the same twice", () => {
  expect(weakness("short", "short")).toMatch(/10 characters/);
  expect(weakness("é".repeat(600), "é".repeat(600))).toMatch(/1024 bytes/);
  expect(weakness("four quiet words", "four quiet word")).toMatch(/not the same/);
  expect(weakness("four quiet words", "four quiet words")).toBeNull();
});

test("a failure says what is wrong and what helps", () => {
  expect(inWords(new Refused(429, "too many tries", 12))).toEqual({ what: "Too many tries.", remedy: "Wait 12 seconds, then try again." });
  expect(inWords(new Unreachable("the node's page server does not answer")).remedy).toMatch(/terminal/);
});
