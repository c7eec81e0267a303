from vitkit.model import ModelInfo, create_model


def test_a_new_model_has_empty_metadata():
    info = create_model("vit_nano_patch4_32", device="meta").info
    assert info == ModelInfo()
    assert not info.class_names
    assert info.preprocess is None


def test_replace_keeps_the_other_fields():
    info = ModelInfo(class_names=("a", "b"), license="CC0")
    assert info.replace(class_names=("c",)) == ModelInfo(class_names=("c",), license="CC0")


def test_split_settings_are_those_that_drew_the_validation_split():
    assert ModelInfo(recipe={"seed": 3, "val_fraction": 0.2, "data": "x"}).split_settings == {
        "seed": 3,
        "val_fraction": 0.2,
    }
    assert ModelInfo().split_settings == {}


def test_old_class_names_do_not_label_a_new_classifier():
    model = create_model("vit_nano_patch4_32", num_classes=2)
    model.info = ModelInfo(class_names=("a", "b"), license="CC0")
    model.reset_classifier(3)
    assert model.info == ModelInfo(license="CC0")
