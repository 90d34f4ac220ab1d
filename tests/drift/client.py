"""Calls `com.acme.translate` through generated code, and prints how that ended."""

import json

import capd
from translator import translate

with capd.Client() as client:
    try:
        print(json.dumps({"outcome": "result", "value": translate(client, {"text": "hello"})}))
    except capd.CapdError as error:
        print(json.dumps({"outcome": error.outcome, "code": error.code}))
