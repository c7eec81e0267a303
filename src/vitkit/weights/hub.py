"""Download models from the Hugging Face hub into its cache, or find them there without a network."""

from pathlib import Path

from vitkit.errors import MissingExtraError, WeightsError
from vitkit.weights.tensor_files import STANDARD

PREFIX = "hf-hub:"
_CONFIGS = ("config.json", "preprocessor_config.json", "open_clip_config.json", "images.safetensors")


def is_name(source: str | Path) -> bool:
    return isinstance(source, str) and source.startswith(PREFIX)


def resolve(source: str | Path) -> Path:
    """Return the local path of a model, after downloading it if `source` is a hub name."""
    return fetch(str(source)) if is_name(source) else Path(source)


def fetch(name: str) -> Path:
    """Download `hf-hub:owner/name` or `hf-hub:owner/name@revision` and return its folder in the cache.

    With HF_HUB_OFFLINE=1 only the cache is searched. HF_HOME sets its location.
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
        raise WeightsError(f"{name} is not a valid hub name: expected hf-hub:owner/name") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.GatedRepoError) as error:
        reason = "access is gated" if "Gated" in type(error).__name__ else "not found, or private"
        raise WeightsError(f"{name}: {reason}; check the name, or log in with `hf auth login`") from error
    except Exception as error:  # network failures raise many unrelated types
        if isinstance(error, WeightsError):
            raise
        return _cached(repository, revision, name, f"the hub cannot be reached ({type(error).__name__})")
    return Path(folder)


def _weights(found: list[str], name: str) -> list[str]:
    for standard in STANDARD:
        if standard in found:
            shards = standard.removesuffix(".index.json").partition(".")
            return [standard, f"{shards[0]}-*.{shards[2]}"] if standard.endswith(".index.json") else [standard]
    raise WeightsError(f"{name} contains no weights with a known file name, such as {STANDARD[0]}")


def _cached(repository: str, revision: str, name: str, why: str) -> Path:
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(repository, revision=revision or None, local_files_only=True))
    except Exception as error:
        raise WeightsError(f"{name} is not in the cache and {why}: download it once while online") from error
