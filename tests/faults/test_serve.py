from pathlib import Path

from tests.serve.client import save_model_dir

from .serve_fuzz import campaign


def test_fuzzed_images_and_requests_do_not_affect_the_server_or_other_clients(tmp_path: Path) -> None:
    """Run a short form of `python -m tests.faults.serve_fuzz`."""
    outcome = campaign(300, save_model_dir(tmp_path / "small", seed=0), seed=1, verbose=False, drips=60, kills=3)
    assert sum(outcome.answers.values()) == 300
    assert outcome.answers["200"] > 10
    assert sum(outcome.answers[code] for code in ("413", "415", "422")) > 50
    assert outcome.drips == {"405": 15, "408": 15, "closed": 30}
    assert len(outcome.held) == 60
    assert outcome.during_kills["503"] == 12
    assert len(outcome.recoveries) == 4
    assert outcome.server_errors == 0, outcome.answers
    assert outcome.fine, outcome
