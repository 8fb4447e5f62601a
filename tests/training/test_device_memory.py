import types

import jax

from spade_jax.training.device_memory import device_memory


def device(account):
    return types.SimpleNamespace(memory_stats=lambda: account)


def test_each_metric_is_of_the_device_where_it_is_largest():
    devices = [
        device({"bytes_in_use": 3, "peak_bytes_in_use": 8, "bytes_limit": 16}),
        device({"bytes_in_use": 5, "peak_bytes_in_use": 6}),
    ]
    assert device_memory(devices) == {
        "device/bytes_in_use": 5.0,
        "device/peak_bytes_in_use": 8.0,
        "device/bytes_limit": 16.0,
    }


def test_a_backend_without_an_account_has_no_metrics():
    assert device_memory([device(None)]) == {}
    assert device_memory(jax.devices("cpu")) == {}
