"""Images in, batches out: readers, splits, decoding, sampling, augmentation."""
