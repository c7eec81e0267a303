from pathlib import Path

from tests.serve.client import save_model_dir

from .serve_fuzz import campaign


def test_hostile_images_and_requests_neither_break_the_server_nor_its_answers_to_others(tmp_path: Path) -> None:
    """A few hundred; `python -m tests.faults.serve_fuzz` does as many as one likes."""
    outcome = campaign(300, save_model_dir(tmp_path / "small", seed=0), seed=1, say=False)
    assert sum(outcome.answers.values()) == 300
    assert outcome.answers["200"] > 10
    assert sum(outcome.answers[code] for code in ("413", "415", "422")) > 50
    assert outcome.server_errors == 0, outcome.answers
    assert outcome.fine, outcome
