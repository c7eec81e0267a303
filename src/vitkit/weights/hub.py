"""Models by their name on the Hugging Face hub: fetched once, kept in its cache, found there without a network."""

from pathlib import Path

from vitkit.errors import MissingExtraError, WeightsError
from vitkit.weights.tensor_files import STANDARD

PREFIX = "hf-hub:"
_CONFIGS = ("config.json", "preprocessor_config.json", "open_clip_config.json")


def is_name(source: str | Path) -> bool:
    return isinstance(source, str) and source.startswith(PREFIX)


def fetch(name: str) -> Path:
    """The folder in the cache that holds the model `hf-hub:owner/name` or `hf-hub:owner/name@revision`.

    HF_HUB_OFFLINE=1 looks into the cache alone; HF_HOME says where that is.
    """
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise MissingExtraError(name, "huggingface_hub", "hub") from error
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    try:
        found = huggingface_hub.list_repo_files(repository, revision=revision or None)
        wanted = [n for n in _CONFIGS if n in found] + _weights(found, name)
        folder = huggingface_hub.snapshot_download(repository, revision=revision or None, allow_patterns=wanted)
    except errors.OfflineModeIsEnabled:
        return _cached(repository, revision, name, "HF_HUB_OFFLINE is set")
    except errors.HFValidationError as error:
        raise WeightsError(f"{name} is no hub name: expected hf-hub:owner/name") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.GatedRepoError) as error:
        reason = "no such model there, or it is private" if "Gated" not in type(error).__name__ else "it is gated"
        raise WeightsError(f"{name}: {reason}; look at the name, or log in with `hf auth login`") from error
    except Exception as error:  # no network shows as many kinds of error as there are networks
        if isinstance(error, WeightsError):
            raise
        return _cached(repository, revision, name, f"the hub cannot be reached ({type(error).__name__})")
    return Path(folder)


def _weights(found: list[str], name: str) -> list[str]:
    for standard in STANDARD:
        if standard in found:
            shards = standard.removesuffix(".index.json").partition(".")
            return [standard, f"{shards[0]}-*.{shards[2]}"] if standard.endswith(".index.json") else [standard]
    raise WeightsError(f"{name} holds no weights under a name that is known, such as {STANDARD[0]}")


def _cached(repository: str, revision: str, name: str, why: str) -> Path:
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(repository, revision=revision or None, local_files_only=True))
    except Exception as error:
        raise WeightsError(f"{name} is not in the cache and {why}: fetch it once with a network") from error
