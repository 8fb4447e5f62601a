"""A fork server with every lock off, to show what the locks prevent. Runs only inside a throwaway jail."""

import json
import os
import sys
import types

sys.path.insert(0, sys.argv.pop(1))

import zygote

child = zygote.child


def only_connect(channel, **_):
    os.dup2(channel, child.CHANNEL)


child.lock_down = only_connect
child.limit_resources = lambda: None
child._reward = lambda reward: reward
child._text = lambda text, max_bytes: text
child._flag = lambda name, value: value
child._numbers = lambda info: info
child._tools = lambda environment, max_bytes: []
child.msgspec = types.SimpleNamespace(
    json=types.SimpleNamespace(
        decode=child.msgspec.json.decode, encode=lambda reply: json.dumps(reply, default=str).encode()
    )
)
zygote.ForkServer.give_up_privileges = lambda *_: None
zygote.main()
