"""Five tiers, of which the first non-empty value wins; what is refused, and hand-made edits."""

from __future__ import annotations

import pytest

from kubeworld.units.durations import MINUTE, SECOND
from reprieve.api.kaiwo import (
    ANNOTATION_PREFIX,
    DERIVED_ANNOTATION,
    GpuWorkloadSpec,
    WorkloadReference,
)
from reprieve.engine.idle.literal import LiteralSwitches
from reprieve.engine.idle.model import Aggregation, PreemptionPolicy
from reprieve.settings.idle import (
    FALLBACK,
    Overrides,
    Tier,
    derive,
    environment_tier,
    follow,
    in_force,
    kaiwo_config_tier,
    overrides_of,
    read_derived,
    resolve,
    spec_tier,
    tier_of,
    with_overrides,
    write_derived,
)

OFF = LiteralSwitches()
SPEC = GpuWorkloadSpec(WorkloadReference("batch/v1", "Job", "train", "uid"), {"amd.com/gpu": 4})


def annotated(**values: str) -> dict[str, str]:
    return {f"{ANNOTATION_PREFIX}{key.replace('_', '-')}": value for key, value in values.items()}


def test_each_tier_fills_what_those_above_leave_out() -> None:
    derived = derive(annotated(threshold="12"), annotated(threshold="11", ttl="11h"), OFF)
    tiers = (
        kaiwo_config_tier({"defaultThreshold": 10, "defaultTTL": "10h", "defaultPolicy": "Always"}),
        environment_tier(
            {
                "GPU_PREEMPTION_DEFAULT_POLICY": "OnPressure",
                "GPU_PREEMPTION_DEFAULT_AGGREGATION": "Min",
            }
        ),
        tier_of(
            {"defaultAggregation": "Avg", "defaultGracePeriod": "7m"},
            "file",
            "--config: gpuPreemption.",
        ),
    )
    found = resolve(derived.overrides, tiers)
    assert (found.threshold, found.ttl) == (12.0, 11 * 60 * MINUTE)
    assert (found.policy, found.aggregation) == (PreemptionPolicy.ALWAYS, Aggregation.MIN)
    assert found.grace_period == 7 * MINUTE
    assert resolve(Overrides(), ()) == FALLBACK


@pytest.mark.parametrize(
    ("suffix", "value", "accepted"),
    [
        ("threshold", "10%", "a number of percent"),
        ("threshold", "NaN", "a number of percent"),
        ("threshold", "Inf", "a number of percent"),
        ("threshold", "1e999", "a number of percent"),
        ("threshold", " 5", "a number of percent"),
        ("threshold", "1__0", "a number of percent"),
        ("threshold", "0x5", "a number of percent"),
        ("threshold", "0x1p99999", "a number of percent"),
        ("threshold", "1" * 250_000 + "x", "a number of percent"),
        ("threshold", "1" * 250_000, "a number of percent"),
        ("grace-period", "1" * 5_000, "a Go duration such as"),
        ("grace-period", "1" * 5_000 + "s", "a Go duration such as"),
        ("grace-period", "1s" * 100_000, "a Go duration such as"),
        ("grace-period", "300", "a Go duration such as"),
        ("grace-period", "1d", "a Go duration such as"),
        ("ttl", "forever", "a Go duration such as"),
        ("policy", "always", "OnPressure or Always"),
        ("aggregation", "Median", "Min, Max or Avg"),
    ],
)
def test_a_bad_annotation_is_named_and_hides_nothing(
    suffix: str, value: str, accepted: str
) -> None:
    good = {"threshold": "20", "grace-period": "15m", "ttl": "1h", "policy": "Always"}
    good["aggregation"] = "Avg"
    key = f"{ANNOTATION_PREFIX}{suffix}"
    derived = derive({key: value}, {key: good[suffix]}, OFF, "Job/train", "Namespace/ml")
    (rejected,) = derived.rejected
    assert (rejected.where, rejected.value) == (f"annotation {key} of Job/train", value)
    assert accepted in rejected.accepted
    settings = resolve(derived.overrides, ())
    assert (
        in_force(settings, rejected.setting)
        == {
            "threshold": "20",
            "grace-period": "15m0s",
            "ttl": "1h0m0s",
            "policy": "Always",
            "aggregation": "Avg",
        }[suffix]
    )


#: What no tier accepts, by setting, and what each of them says instead.
BEYOND: dict[str, tuple[tuple[str, ...], str]] = {
    "threshold": (
        ("150", "100.5", "-1", "1e300"),
        "a number of percent from 0 to 100, such as 5 or 10.5",
    ),
    "grace_period": (
        ("-5m", "-1ns"),
        "a Go duration such as 90s or 5m, 0 or more",
    ),
    "ttl": (("-1h", "-1ns"), "a Go duration such as 90s or 5m, 0 or more"),
}


def every_tier(setting: str, value: str) -> dict[str, Tier]:
    """Return one value as each tier reads it."""
    in_config = {"threshold": "defaultThreshold", "grace_period": "defaultGracePeriod"}
    key = in_config.get(setting, "defaultTTL")
    number = float(value) if setting == "threshold" else None
    spec = GpuWorkloadSpec(
        SPEC.workload_ref,
        SPEC.gpu_resources,
        utilization_threshold=number,
        grace_period=value if setting == "grace_period" else None,
        ttl_after_finished=value if setting == "ttl" else None,
    )
    root = derive(annotated(**{setting: value}), None, OFF)
    namespace = derive(None, annotated(**{setting: value}), OFF)
    return {
        "root": Tier("root", root.overrides, root.rejected),
        "namespace": Tier("namespace", namespace.overrides, namespace.rejected),
        "spec": spec_tier(spec),
        "config": kaiwo_config_tier({key: value if number is None else number}),
        "environment": environment_tier({f"GPU_PREEMPTION_DEFAULT_{setting.upper()}": value}),
        "file": tier_of({key: value}, "file", "--config: gpuPreemption."),
    }


@pytest.mark.parametrize(
    ("setting", "value"), [(name, each) for name, (values, _) in BEYOND.items() for each in values]
)
def test_no_tier_accepts_what_another_refuses_and_all_say_the_same(
    setting: str, value: str
) -> None:
    for name, tier in every_tier(setting, value).items():
        assert tier.overrides == Overrides(), name
        assert [each.accepted for each in tier.rejected] == [BEYOND[setting][1]], name


@pytest.mark.parametrize(
    ("setting", "value"),
    [("threshold", "0"), ("threshold", "100"), ("grace_period", "0s"), ("ttl", "0s")],
)
def test_every_tier_accepts_the_bounds(setting: str, value: str) -> None:
    for name, tier in every_tier(setting, value).items():
        assert tier.rejected == (), name
        assert getattr(tier.overrides, setting) == (float(value) if setting == "threshold" else 0)


def test_annotations_read_once_lets_a_bad_root_value_hide_the_namespaces() -> None:
    root, namespace = annotated(grace_period="soon"), annotated(grace_period="15m")
    literal = LiteralSwitches(annotations_read_once=True)
    assert derive(root, namespace, OFF).overrides.grace_period == 15 * MINUTE
    assert derive(root, namespace, literal).overrides.grace_period is None


def test_any_annotation_opts_in_and_enabled_false_is_told() -> None:
    derived = derive(annotated(enabled="false"), None, OFF, "Job/train")
    assert derived.tracked
    (notice,) = derived.notices
    assert "there is no value that opts out" in notice.text
    assert derive(annotated(enabled="true"), None, OFF).notices == ()
    assert not derive({"other/annotation": "x"}, {}, OFF).tracked


def test_an_unknown_ending_opts_in_and_is_told() -> None:
    derived = derive(annotated(treshold="5"), None, OFF)
    assert derived.tracked
    assert derived.overrides == Overrides()
    assert "known endings: enabled, threshold" in derived.notices[0].text


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        '{"a":' * 50_000,
        f'{{"gracePeriod": {"1" * 5_000}}}',
        "{" + " " * 250_000 + "}",
    ],
)
def test_what_was_derived_and_then_spoilt_counts_as_missing(text: str) -> None:
    assert read_derived({DERIVED_ANNOTATION: text}) is None


@pytest.mark.parametrize("number", ["9" * 4_000, "1e999"])
def test_what_was_derived_counts_as_missing_where_a_number_in_it_is_no_float(number: str) -> None:
    text = f'{{"utilizationThreshold": {number}, "gracePeriod": "5m"}}'
    assert read_derived({DERIVED_ANNOTATION: text}) is None


def test_one_bad_field_of_the_kaiwo_config_costs_only_itself() -> None:
    tier = kaiwo_config_tier(
        {"defaultThreshold": 101, "defaultGracePeriod": "15 m", "defaultTTL": 0}
    )
    assert tier.overrides == Overrides(ttl=0)
    assert [r.where for r in tier.rejected] == [
        "KaiwoConfig/kaiwo spec.gpuPreemption.defaultThreshold",
        "KaiwoConfig/kaiwo spec.gpuPreemption.defaultGracePeriod",
    ]


@pytest.mark.parametrize(
    ("text", "percent"),
    [("5", 5), ("+.5", 0.5), ("5.", 5), ("5E+1", 50), ("1_0", 10), ("0x1.8p3", 12), ("0x_1p0", 1)],
)
def test_a_threshold_is_any_number_that_go_reads(text: str, percent: float) -> None:
    assert derive(annotated(threshold=text), {}, OFF).overrides.threshold == percent


def test_a_threshold_of_zero_is_a_value() -> None:
    tiers = (kaiwo_config_tier({"defaultThreshold": 0}),)
    assert resolve(Overrides(), tiers).threshold == 0.0


def test_a_bad_variable_does_not_hide_the_file() -> None:
    tiers = (
        environment_tier({"GPU_PREEMPTION_DEFAULT_TTL": "1d"}),
        tier_of({"defaultTTL": "2h"}, "file", "f: "),
    )
    assert resolve(Overrides(), tiers).ttl == 120 * MINUTE
    assert tiers[0].rejected[0].where == "variable GPU_PREEMPTION_DEFAULT_TTL"


def test_changed_annotations_are_followed_and_hand_made_edits_stay() -> None:
    base = Overrides(threshold=5.0, grace_period=5 * MINUTE)
    new = Overrides(threshold=7.0, grace_period=9 * MINUTE, ttl=SECOND)
    edited = Overrides(threshold=5.0, grace_period=30 * MINUTE)
    assert follow(edited, base, new) == Overrides(
        threshold=7.0, grace_period=30 * MINUTE, ttl=SECOND
    )


def test_a_removed_annotation_leaves_the_field_to_the_lower_tiers() -> None:
    base = Overrides(threshold=5.0)
    assert follow(base, base, Overrides()) == Overrides()


def test_a_field_that_is_removed_by_hand_follows_its_annotation_again() -> None:
    base, edited = Overrides(threshold=5.0), Overrides(threshold=50.0)
    assert follow(edited, base, base) == edited
    assert follow(Overrides(), base, base) == base
    assert follow(Overrides(), base, Overrides(threshold=7.0)) == Overrides(threshold=7.0)
    assert follow(Overrides(), base, Overrides()) == Overrides()


def test_without_a_known_base_set_fields_count_as_made_by_hand() -> None:
    assert follow(Overrides(threshold=9.0), None, Overrides(threshold=5.0, ttl=0)) == Overrides(
        threshold=9.0, ttl=0
    )


def test_overrides_go_into_the_spec_in_gos_long_form_and_back() -> None:
    overrides = Overrides(10.5, 5 * MINUTE, PreemptionPolicy.ALWAYS, Aggregation.AVG, 0)
    spec = with_overrides(SPEC, overrides)
    assert (spec.grace_period, spec.ttl_after_finished) == ("5m0s", "0s")
    assert overrides_of(spec) == overrides
    assert with_overrides(spec, Overrides()) == SPEC


def test_equal_durations_keep_the_text_that_a_person_wrote() -> None:
    spec = GpuWorkloadSpec(SPEC.workload_ref, SPEC.gpu_resources, grace_period="5m")
    assert with_overrides(spec, Overrides(grace_period=5 * MINUTE)) == spec


def test_what_was_derived_is_read_back_and_spoilt_text_is_none() -> None:
    overrides = Overrides(10.5, 5 * MINUTE, None, Aggregation.AVG, None)
    text = write_derived(overrides)
    assert read_derived({"reprieve.dev/derived": text}) == overrides
    for spoilt in ("{", "[]", "null"):
        assert read_derived({"reprieve.dev/derived": spoilt}) is None
    assert read_derived(None) is None


def test_a_tier_without_values_says_nothing() -> None:
    assert kaiwo_config_tier(None) == Tier("KaiwoConfig")
    assert environment_tier({"GPU_PREEMPTION_DEFAULT_TTL": ""}) == Tier("environment")


def test_a_value_that_is_refused_is_reported_as_it_was_written() -> None:
    for written, shown in ((150.0, "150"), (150, "150"), (100.5, "100.5"), (1e400, "inf")):
        (rejected,) = kaiwo_config_tier({"defaultThreshold": written}).rejected
        assert rejected.value == shown


def test_a_duration_beyond_all_bounds_is_refused_with_the_longest() -> None:
    key = f"{ANNOTATION_PREFIX}ttl"
    (rejected,) = derive({key: "99999999h"}, {}, OFF, "Job/train", "Namespace/ml").rejected
    assert rejected.accepted.endswith("at most 2562047h")
    assert not derive({key: "2562047h"}, {}, OFF, "Job/train", "Namespace/ml").rejected
