"""The CEL subset: selectors of public drivers, semantics of CEL, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.engine.placement.filters.dynamic.device_selectors import (
    UnsupportedSelector,
    compile_selector,
)
from reprieve.engine.placement.filters.dynamic.device_values import SelectorError, facts_of
from tests.engine.devices.drivers import device

GIB = 2**30

NVIDIA: dict[str, Any] = {
    "type": "gpu",
    "uuid": "GPU-4cf8db2d",
    "productName": "NVIDIA A100-SXM4-40GB",
    "brand": "Nvidia",
    "architecture": "Ampere",
    "cudaComputeCapability": "v8.0.0",
    "driverVersion": "v550.54.15",
    "cudaDriverVersion": "v12.4.0",
    "index": 3,
    "resource.kubernetes.io/pcieRoot": "pci0000:01",
}
MIG: dict[str, Any] = {
    "type": "mig",
    "profile": "1g.5gb",
    "parentUUID": "GPU-4cf8db2d",
    "parentIndex": 0,
    "productName": "NVIDIA A100-SXM4-40GB",
}
AMD: dict[str, Any] = {
    "type": "amdgpu",
    "pciAddr": "0000:0c:00.0",
    "cardIndex": 1,
    "renderIndex": 129,
    "deviceID": "8462659665828489",
    "family": "AI",
    "productName": "AMD_Instinct_MI300X_OAM",
    "driverVersion": "v6.10.5",
    "partitionProfile": "spx_nps1",
}

DEVICES = {
    "nvidia": facts_of("gpu.nvidia.com", device("gpu-0", capacity={"memory": 40 * GIB}, **NVIDIA)),
    "mig": facts_of("gpu.nvidia.com", device("gpu-0-mig-9", capacity={"memory": 5 * GIB}, **MIG)),
    "amd": facts_of("gpu.amd.com", device("gpu-1-129", capacity={"memory": 192 * GIB}, **AMD)),
    "shared": facts_of("x.example.com", device("d", shareable=True, flag=True, n=-2)),
}


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        # Device classes and examples of the public drivers.
        (
            (
                "device.driver == 'gpu.nvidia.com'"
                " && device.attributes['gpu.nvidia.com'].type == 'gpu'"
            ),
            {"nvidia"},
        ),
        (
            (
                'device.driver == "gpu.nvidia.com"'
                ' && device.attributes["gpu.nvidia.com"].type == "mig"'
            ),
            {"mig"},
        ),
        ("device.driver == 'gpu.amd.com'", {"amd"}),
        ("'gpu.nvidia.com' in device.attributes", {"nvidia", "mig"}),
        (
            (
                "device.driver == 'gpu.nvidia.com'\n  && device.attributes['gpu.nvidia.com']"
                ".productName.lowerAscii().matches('^.*a100.*$')\n"
            ),
            {"nvidia", "mig"},
        ),
        (
            (
                'device.driver == "gpu.nvidia.com"'
                ' && device.attributes["gpu.nvidia.com"].type == "mig"'
                ' && device.attributes["gpu.nvidia.com"].profile == "1g.5gb"'
            ),
            {"mig"},
        ),
        (
            (
                "device.driver == 'gpu.nvidia.com' && device.capacity['gpu.nvidia.com']"
                ".memory.compareTo(quantity('40Gi')) >= 0"
            ),
            {"nvidia"},
        ),
        (
            (
                "device.driver == 'gpu.nvidia.com' && has(device.attributes['gpu.nvidia.com']"
                ".cudaComputeCapability) && device.attributes['gpu.nvidia.com']"
                ".cudaComputeCapability.compareTo(semver('7.5.0')) >= 0"
            ),
            {"nvidia"},
        ),
        (
            (
                "device.driver == 'gpu.nvidia.com'"
                " && has(device.attributes['gpu.nvidia.com'].index)"
                " && device.attributes['gpu.nvidia.com'].index < 4"
            ),
            {"nvidia"},
        ),
        (
            (
                "device.driver == 'gpu.amd.com'"
                " && device.attributes['gpu.amd.com'].type == 'amdgpu'"
                " && device.attributes['gpu.amd.com'].partitionProfile.startsWith('spx')"
            ),
            {"amd"},
        ),
        (
            (
                "device.driver == 'gpu.amd.com' ? device.attributes['gpu.amd.com']['cardIndex'] in"
                " [1, 2] : false"
            ),
            {"amd"},
        ),
        (
            (
                "cel.bind(dra, device.attributes['gpu.amd.com'], device.driver == 'gpu.amd.com' &&"
                " dra.productName.contains('MI300X') && dra.family.endsWith('I'))"
            ),
            {"amd"},
        ),
        ("device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:01' || true", None),
        ("has(device.attributes['resource.kubernetes.io'].pcieRoot)", {"nvidia"}),
        # Semantics.
        ("device.allowMultipleAllocations", {"shared"}),
        ("!device.allowMultipleAllocations && !(1 == 2)", {"nvidia", "mig", "amd"}),
        ("has(device.attributes['x.example.com'].flag) && 1 == 1", {"shared"}),
        (
            (
                "has(device.attributes['x.example.com'].n)"
                " ? -2 == device.attributes['x.example.com'].n : 'a' == 'b'"
            ),
            {"shared"},
        ),
        ("1 == true", set()),
        ("1 != '1' && 2 > 1 && 1 >= 1 && 'a' < 'b' && 1 <= 2", None),
        ("false && device.attributes['none'].x == 1 || true", None),
        ("device.attributes['none'].x == 1 && false", set()),
        ("true || device.attributes['none'].x == 1", None),
        ("device.attributes['none'].x == 1 || true", None),
        ("quantity('1Gi') == quantity('1024Mi')", None),
        ("quantity('1').isGreaterThan(quantity('999m'))", None),
        ("quantity('1').isLessThan(quantity('1001m'))", None),
        ("semver('1.0.0-rc.2').isLessThan(semver('1.0.0-rc.10'))", None),
        ("semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))", None),
        ("semver('1.0.0+a') == semver('1.0.0+b') && semver('1.10.0') != semver('1.9.0')", None),
        ("r'a\\b' == 'a\\\\b' && 'it\\'s' == \"it's\" && '\\u0041\\x42' == 'AB'", None),
        ("'''a'b''' == \"a'b\" // the rest of the line is a comment\n", None),
        ("0x10 == 16 && ('a' in ['a', 1]) && !('b' in ['a'])", None),
        ("010 == 10 && -9223372036854775808 < 9223372036854775807", None),
        ("[1, [2]] == [1, [2]] && [1] != [true] && [[1]] != [[1, 2]] && [1] in [[2], [1]]", None),
        ("device.driver.matches('(gpu|GPU)+[.](nv|amd).*(com$|org$)')", {"nvidia", "mig", "amd"}),
        ("device.driver.matches('^(?i)GPU')", {"nvidia", "mig", "amd"}),
        ("'gpu.nvidia.com'.matches(device.driver)", {"nvidia", "mig"}),
        ("cel.bind(x, device.attributes['none'].x, true || x == 1)", None),
        ("cel.bind(x, device.attributes['none'].x, false && x == 1)", set()),
    ],
)
def test_what_an_expression_selects(expression: str, selected: set[str] | None) -> None:
    evaluate = compile_selector(expression)
    found = {name for name, facts in DEVICES.items() if evaluate(facts)}
    assert found == (set(DEVICES) if selected is None else selected)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("device.attributes['gpu.nvidia.com'].nope == 1", "no such key: nope"),
        ("device.attributes['none'].x", "no such key: x"),
        (
            "device.capacity['gpu.nvidia.com'].cores.compareTo(quantity('1')) > 0",
            "no such key: cores",
        ),
        ("device.attributes['gpu.nvidia.com'].index < 'a'", "no such overload"),
        ("device.attributes['gpu.nvidia.com'].index.startsWith('a')", "no such overload"),
        ("device.attributes['gpu.nvidia.com'].type", "the result is not a boolean"),
        ("1", "the result is not a boolean"),
        ("'a' && true", "no such overload"),
        ("!1", "no such overload"),
        ("1 in 2", "no such overload"),
        ("quantity('much') == quantity('1')", "much is not a quantity"),
        ("semver('1.0') == semver('1.0.0')", "1.0 is not a semantic version"),
        ("quantity('1').compareTo(semver('1.0.0')) == 0", "no such overload"),
        ("[1][1] == 1", "index out of bounds: 1"),
        ("cel.bind(x, device.attributes['none'].x, x == 1 || x == 1)", "no such key: x"),
        ("device.driver.matches('[' == '' ? '' : '(')", r"error parsing regexp: missing \): ("),
        (
            "semver('99999999999999999999999.0.0') == semver('1.0.0')",
            "9{23}.0.0 is not a semantic.*",
        ),
    ],
)
def test_an_expression_without_value_is_an_error(expression: str, text: str) -> None:
    with pytest.raises(SelectorError, match=rf"^{text}$".replace("(", r"\(")):
        compile_selector(expression)(DEVICES["nvidia"])


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("device.attributes.all(x, true)", "all"),
        ("size(device.driver) > 0", "size"),
        ("device.driver + 'a' == 'b'", r"\+"),
        ("1.5 > 1", r"1\.5"),
        ("1 - 1 == 0", "-"),
        ("device.driver.upperAscii() == 'A'", "upperAscii"),
        ("device.attributes[?'a'].x.orValue(1) == 1", r"\?"),
        ("device.name == 'a'", r"device\.name"),
        ("other == 1", "other"),
        ("{'a': 1}.a == 1", "{"),
        ("b'a' == b'a'", "'b'"),
        ("has(device.driver())", "has"),
        ("has(device.attributes['a'])", "has"),
        ("cel.block([1], true)", "cel"),
        ("quantity('1', true) == quantity('1')", "quantity"),
        ("semver('v1.0', true) == semver('1.0.0')", "semver"),
        ("device.driver.matches('[')", r"error parsing regexp: missing \]"),
        ("device.driver.matches('(a{1000}){1000}')", "error parsing regexp: invalid repetition"),
        (r"device.driver.matches('(?=a)\\1')", "error parsing regexp: invalid perl operator"),
        (f"device.driver.matches('{'.{1000}' * 1000}')", "error parsing regexp: pattern too large"),
        (r"device.driver.matches('%s')" % (r"\\pL" * 1000), "regexp: pattern too large"),
        ("device.driver.matches()", r"matches\(\) with 0 arguments"),
        ("9223372036854775808 > 1", "64 bits"),
        ("-9223372036854775809 < 1", "64 bits"),
        ("1" * 5000 + " > 1", "64 bits"),
        (r"'\ud800' == 'a'", "no character"),
        ("true" + " " * 10_240, "longer than 10240 bytes"),
        ("(" * 1000 + "true" + ")" * 1000, "deep"),
        ("!" * 5000 + "true", "deep"),
        ("device" + ".a" * 5000, "a"),
        ("true &&", "early"),
        ("(true", r"'\)'"),
        ("true true", "true"),
        ("'open", "'open"),
        (r"'\q' == 'q'", r"\\q"),
        ("", "early"),
    ],
)
def test_what_is_outside_the_subset_is_named(expression: str, named: str) -> None:
    with pytest.raises(UnsupportedSelector, match=named):
        compile_selector(expression)
