"""Read a CSV of image paths and labels."""

import csv
from pathlib import Path

from vitkit.data.dataset import Dataset, FileImages
from vitkit.data.readers.columns import IMAGE_COLUMNS, check_paths, find_column, parse_labels, parse_split
from vitkit.data.split import RawDataset, build_dataset
from vitkit.errors import DataError


def read_csv(path: Path, label: str) -> Dataset:
    """Read columns `image` or `path` (relative to the CSV), the label column, and optionally `split`."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            file.seek(0)
            reader = csv.DictReader(file, delimiter=max(",;\t", key=head.count), strict=True, restkey="")
            rows = [(f"{path}, line {reader.line_num}", row) for row in reader]
            columns = list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as CSV ({error}); expected UTF-8 with a header line") from error
    image_column = find_column(columns, IMAGE_COLUMNS, str(path))
    label_column = find_column(columns, (label,), str(path))
    has_splits = "split" in columns
    for where, row in rows:
        for column in (image_column, label_column, *(["split"] if has_splits else [])):
            if not (row[column] or "").strip():
                raise DataError(f"{where}: no {column}; fill it in or remove the line")
    splits = [parse_split(row["split"], where) for where, row in rows] if has_splits else None
    images = check_paths(FileImages([str(path.parent / row[image_column]) for _, row in rows]), path)
    return build_dataset(RawDataset(path.stem, images, parse_labels([row[label_column] for _, row in rows]), splits))
