"""The table of methods: which options each takes, and what is refused."""

import pytest

from tests.explanation.test_result import named
from tests.model.small import random_images, small_model
from vitkit.errors import UsageError
from vitkit.explanation import DEFAULT_METHOD, METHODS, explain
from vitkit.explanation.methods import MethodOptions, parse_query

REFUSED = {
    "unknown method": (dict(method="atention"), "unknown method 'atention'; did you mean 'attention'"),
    "layer": (dict(method="attention", layer=3), "layer 3 is out of range: use 0…2"),
    "layer of rollout": (dict(method="rollout", layer=-4), "layer -4 is out of range"),
    "head": (dict(method="attention", head=2), "head 2 is out of range: use 0…1"),
    "patch": (dict(method="attention", query=(4, 0)), "patch 4,0 is outside the grid of 4×3 patches: rows are 0…3"),
    "class of attention": (dict(method="attention", target=1), "'attention' has no class option: remove it"),
    "head of rollout": (dict(method="rollout", head=1), "'rollout' has no head option"),
    "window": (dict(method="occlusion", window=4), "a window of 4 patches does not fit a grid of 4×3: use 1…3"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_options_are_refused_in_one_line(options, message):
    model = named()
    with pytest.raises(UsageError) as caught:
        explain(model, random_images(model), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_option_is_a_field_of_the_options():
    assert DEFAULT_METHOD in METHODS
    fields = set(MethodOptions.__dataclass_fields__)
    assert all(method.options <= fields for method in METHODS.values())
    assert {name for name, m in METHODS.items() if m.class_specific} == {"gradient", "attribution", "occlusion"}


@pytest.mark.parametrize(("text", "query"), [(None, None), ("class", "class"), ("mean", "mean"), ("3, 7", (3, 7))])
def test_a_query_is_parsed(text, query):
    assert parse_query(text) == query


@pytest.mark.parametrize("text", ["3;7", "patch", "3,", "-1,2", ""])
def test_an_invalid_query_is_refused(text):
    with pytest.raises(UsageError, match="expected class, mean, or a patch as ROW,COL"):
        parse_query(text, "--query")


def test_without_a_class_token_the_error_names_other_queries():
    model = named(class_token=False, pooling="mean")
    with pytest.raises(UsageError, match=r"no class token, its pooling is 'mean': omit the query .* ROW,COL"):
        explain(model, random_images(model), "attention", query="class")


def test_a_model_without_a_classifier_has_attention_but_no_class_maps():
    model = small_model(num_classes=0)
    assert explain(model, random_images(model), "rollout").labels == ("", "")
    with pytest.raises(UsageError, match="has no classifier, and 'attribution' explains a class"):
        explain(model, random_images(model), "attribution")
