from pathlib import Path

from vitkit.weights.model_dir import save_model

from .test_model_dir import INFO, model


def test_the_model_card_names_classes_metrics_preprocessing_and_licence(tmp_path: Path) -> None:
    save_model(model(), tmp_path / "pets", INFO)
    card = (tmp_path / "pets" / "README.md").read_text(encoding="utf-8")
    for words in ("# pets", "cat, dog, emu", "val_top1 | 0.9", "CC0", "2 layers", "mean: 0.1, 0.2, 0.3"):
        assert words in card, words
