"""Examples of every command and public function. The tests run them in the order of the reference pages.

Their working directory holds `photos/` (class folders), `deit_tiny.safetensors` (DeiT's layout) and a run, `runs/mine`.
"""

COMMANDS = {
    "demo": ["vitkit demo --epochs 2"],
    "models": ["vitkit models base", "vitkit models 'vit_*_patch16_224' --json > models.json"],
    "summary": ["vitkit summary vit_base_patch16_224 --depth 2"],
    "inspect": ["vitkit inspect photos"],
    "pack": ["vitkit pack photos shards --shard-size 100KB"],
    "plan": ["vitkit plan --model vit_base_patch16_224 --gpus 8 --gpu-memory 80GB --flops 300 --batch 1024"],
    "train": [
        """
        vitkit train digits --out runs/digits --epochs 2 --seed 1
        vitkit train digits --out runs/digits --resume
        vitkit train photos --init deit_tiny.safetensors --recipe finetune --minutes 10 --out runs/photos
        """
    ],
    "ladder": ["vitkit ladder photos --init deit_tiny.safetensors --minutes 10 --out runs/ladder"],
    "eval": [
        "vitkit eval runs/digits digits --temperature --out evaluation",
        "vitkit eval deit_tiny.safetensors photos --knn",
    ],
    "embed": ["vitkit embed runs/photos photos --out features.npz"],
    "predict": ["vitkit predict runs/photos photos/*/*.png --top 2 --csv answers.csv"],
    "explain": ["vitkit explain runs/photos photos/cat/00.png --out maps --method rollout"],
    "convert": ["vitkit convert deit_tiny.safetensors deit-hf --to hf"],
    "bench": ["vitkit bench vit_nano_patch4_32 --train --against tutorial --batch 8 --rounds 3 --no-memory"],
    "report": [
        "vitkit report runs/digits runs/photos --out two-runs.html",
        """
        vitkit train digits --out runs/sgd-0 --epochs 1 --seed 0 --set optimizer.name=sgd --set optimizer.lr=0.1
        vitkit train digits --out runs/sgd-1 --epochs 1 --seed 1 --set optimizer.name=sgd --set optimizer.lr=0.1
        vitkit train digits --out runs/adam-0 --epochs 1 --seed 0
        vitkit train digits --out runs/adam-1 --epochs 1 --seed 1
        vitkit report runs/sgd-0 runs/sgd-1 --against runs/adam-0 runs/adam-1 --out recipes.html
        """,
    ],
    "serve": [
        """
        vitkit serve runs/photos --port 8000 &
        curl --retry 60 --retry-connrefused --silent --data-binary @photos/cat/00.png http://127.0.0.1:8000/v1/predict
        kill %1
        """
    ],
}

PYTHON = {
    "Predictor": """
        import vitkit

        predictor = vitkit.Predictor("runs/mine")
        for prediction in predictor("photos/cat/00.png", top=2):
            print(prediction.label, prediction.score)
        one, two = predictor(["photos/cat/00.png", "photos/rocket/00.png"])
        """,
    "Recipe": """
        import vitkit

        recipe = vitkit.Recipe(data="digits", model="vit_digits_patch2_8")
        recipe = recipe.override(["budget.epochs=0.1", "optimizer.lr=2e-3"])
        assert vitkit.Recipe.from_dict(recipe.to_dict()) == recipe
        """,
    "ViT": """
        import torch
        import vitkit

        config = vitkit.ViTConfig(image_size=32, patch_size=4, width=48, depth=2, heads=3, num_classes=10)
        model = vitkit.ViT(config).eval()
        images = torch.randn(2, 3, 32, 48)  # any size that the patch divides
        assert model(images).shape == (2, 10)
        assert model.forward_features(images).shape == (2, 1 + 96, 48)
        maps = model.attention(images, layers=[-1])
        assert torch.allclose(maps.sum(-1), torch.ones(maps.shape[:-1]))
        """,
    "ViTConfig": """
        import vitkit

        config = vitkit.ViTConfig(image_size=(32, 48), patch_size=4, width=96, depth=2, heads=3, registers=4)
        print(config.replace(depth=3).to_json())
        assert vitkit.ViTConfig.from_dict(config.to_dict()) == config
        """,
    "create_model": """
        import vitkit

        model = vitkit.create_model("vit_tiny_patch16_224", num_classes=10, drop_path=0.1, seed=0)
        print(f"{sum(p.numel() for p in model.parameters()):,}")
        """,
    "evaluate": """
        import vitkit

        evaluation = vitkit.evaluate("runs/mine", "photos", split="val")
        print(f"{evaluation.top1:.1%} of {evaluation.n}, {evaluation.top1_interval}, F1 {evaluation.macro_f1:.3f}")
        """,
    "open_data": """
        import vitkit

        data = vitkit.open_data("photos")
        print(data.class_names, {name: len(split) for name, split in data.splits.items()})
        """,
    "Preprocess": """
        import vitkit

        preprocess = vitkit.Preprocess(size=(32, 32), fit="pad")
        model = vitkit.load_model("runs/mine")
        print(model.info.preprocess, preprocess.size)
        """,
    "predict_split": """
        import vitkit

        model, data = vitkit.load_model("runs/mine"), vitkit.open_data("photos")
        predictions = vitkit.predict_split(model, data.splits["val"], model.info.preprocess, data.class_names)
        print(predictions.logits.shape, predictions.labels[:4])
        """,
    "compare": """
        import vitkit

        before = vitkit.evaluate("runs/mine", "photos", split="val")
        after = vitkit.evaluate("runs/mine", "photos", split="val", image_size=48)
        print(vitkit.compare(before, after).p_value)
        """,
    "extract_features": """
        import vitkit

        model, data = vitkit.load_model("runs/mine"), vitkit.open_data("photos")
        features = vitkit.extract_features(model, data.splits["train"])
        print(features.values.shape)
        """,
    "convert": """
        import vitkit

        report = vitkit.convert("deit_tiny.safetensors", "deit-hf", "hf")
        print(report)
        """,
    "export_model": """
        import vitkit

        result = vitkit.export_model(vitkit.load_model("runs/mine"), "mine-onnx", "onnx")
        print(result.folder, list(result.files))
        """,
    "write_report": """
        import vitkit

        print(vitkit.write_report("runs/mine", "mine.html"))
        """,
    "get_recipe": """
        import vitkit

        recipe = vitkit.get_recipe("finetune")
        print(recipe.optimizer.lr, recipe.budget.epochs)
        """,
    "explain": """
        import vitkit

        found = vitkit.explain(vitkit.load_model("runs/mine"), ["photos/cat/00.png"], "rollout")
        print(found.maps.shape, found.labels, found.scores)
        """,
    "load_model": """
        import vitkit

        model = vitkit.load_model("runs/mine", num_classes=2)  # other weights stay, the head is new
        """,
    "save_model": """
        import vitkit

        vitkit.save_model(vitkit.create_model("vit_nano_patch4_32", seed=0), "untrained")
        assert vitkit.load_model("untrained").config.width == 48
        """,
    "train": """
        import vitkit

        recipe = vitkit.get_recipe("digits").override(["budget.epochs=0.1"])
        result = vitkit.train(recipe, "runs/from-python", on_step=lambda step, metrics, model: print(step, metrics))
        print(result.val["top1"], result.weights_sha256)
        """,
    "list_models": """
        import vitkit

        print(vitkit.list_models("vit_*_patch4_32"))
        """,
    "make_loader": """
        import vitkit

        data = vitkit.open_data("digits")
        preprocess = vitkit.Preprocess(size=(8, 8), channels=1, crop_fraction=1.0)
        loader = vitkit.make_loader(data.splits["train"], preprocess, vitkit.Augment(mixup=0.2), batch_size=64, seed=0)
        for batch in loader:
            assert batch.images.shape == (64, 1, 8, 8) and batch.targets.shape == (64, 10)
        print(len(loader), loader.epoch)
        """,
    "SplitDataset": """
        import torch
        import vitkit

        data = vitkit.open_data("digits")
        preprocess = vitkit.Preprocess(size=(8, 8), channels=1, crop_fraction=1.0)
        dataset = vitkit.SplitDataset(data.splits["val"], preprocess)
        images, labels = next(iter(torch.utils.data.DataLoader(dataset, batch_size=16)))
        print(images.shape, labels.shape)
        """,
    "Augment": """
        import vitkit

        recipe = vitkit.get_recipe("digits").replace(augment=vitkit.Augment(crop="pad", flip=False, cutmix=1.0))
        print(recipe.augment)
        """,
    "Budget": """
        import vitkit

        budget = vitkit.Budget(epochs=5, early_stop=3, monitor="loss", goal="min")
        print(vitkit.get_recipe("digits").replace(budget=budget).budget)
        """,
    "Optimizer": """
        import vitkit

        optimizer = vitkit.Optimizer(name="sgd", lr=0.1, options={"momentum": 0.9, "nesterov": True})
        print(vitkit.get_recipe("digits").replace(optimizer=optimizer).optimizer.name)
        """,
    "Schedule": """
        import vitkit

        print(vitkit.get_recipe("digits").replace(schedule=vitkit.Schedule(shape="wsd", warmup=0.1)).schedule)
        """,
    "Supervised": """
        import vitkit

        supervised = vitkit.Supervised()


        def objective(model, batch):
            loss, metrics = supervised(model, batch)
            return loss, {**metrics, "confidence": model(batch.images).softmax(1).amax(1).mean()}


        recipe = vitkit.get_recipe("digits").override(["budget.epochs=0.1"])
        print(vitkit.train(recipe, "runs/confidence", objective=objective).metrics)
        """,
    "WandbLogger": """
        import vitkit

        logger = vitkit.WandbLogger(project="digits", mode="offline")  # vitkit.train(recipe, loggers=[logger])
        """,
    "MlflowLogger": """
        import vitkit

        logger = vitkit.MlflowLogger(experiment="digits", uri="http://127.0.0.1:5000")
        """,
    "TensorBoardLogger": """
        import vitkit

        logger = vitkit.TensorBoardLogger()  # used without being asked for, if tensorboard is installed
        """,
    "load_predictions": """
        import vitkit

        predictions = vitkit.load_predictions("runs/mine/predictions-val.safetensors")
        print(predictions.logits.shape, predictions.names[:2])
        """,
    "compare_runs": """
        import vitkit

        digits = vitkit.get_recipe("digits").override(["budget.epochs=0.1"])
        recipes = [digits.override([f"optimizer.lr={lr}"]) for lr in (1e-3, 3e-3)]
        runs = [[f"runs/lr{i}-{seed}" for seed in (0, 1)] for i in (0, 1)]
        for recipe, folders in zip(recipes, runs):
            for seed, folder in enumerate(folders):
                vitkit.train(recipe.replace(seed=seed), folder, quiet=True)
        print(vitkit.compare_runs(*runs).summary("1e-3", "3e-3"))
        """,
}

RECIPE = "vitkit train digits --out runs/changed --epochs 1 --set optimizer.name=muon --set augment.mixup=0"
