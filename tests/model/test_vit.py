import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from vitkit.errors import ConfigError, InputError, UnknownNameError
from vitkit.model import ViT, ViTConfig, create_model
from vitkit.model.pos_embed import resample_table, sincos_table

from .small import BASE, OPTIONS, random_images, small_config, small_model


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@torch.no_grad()
def test_logits_are_the_classifier_of_the_pooled_tokens(options):
    model = small_model(**options)
    images = random_images(model)
    tokens = model.forward_features(images)
    c = model.config
    assert tokens.shape == (2, c.prefix + c.grid[0] * c.grid[1], c.width)
    pooled = model.fc_norm(model.attn_pool(tokens))
    if c.head_hidden:
        pooled = torch.tanh(pooled @ model.pre_logits.fc.weight.T + model.pre_logits.fc.bias)
    expected = pooled @ model.head.weight.T + model.head.bias if c.num_classes else pooled
    if c.distillation:
        expected = (expected + tokens[:, 1] @ model.head_dist.weight.T + model.head_dist.bias) / 2
    assert_close(model(images), expected)
    assert model(images).shape == (2, c.num_classes or c.pooled_width)


@pytest.mark.parametrize("size", [(16, 24), (4, 8), (32, 8), (12, 48)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@torch.no_grad()
def test_any_size_that_the_patch_divides_is_accepted(options, size):
    model = small_model(**options)
    images = random_images(model, size=size)
    assert model.forward_features(images).shape[1] == model.config.prefix + (size[0] // 4) * (size[1] // 8)
    assert model(images).isfinite().all()


@pytest.mark.parametrize("size", [(16, 24), (8, 40)])
@torch.no_grad()
def test_tokens_are_class_registers_and_patches_each_with_its_position(size):
    model = small_model(registers=2)
    images = random_images(model, size=size)
    x, rope = model.embed(images)
    assert rope is None
    table = resample_table(model.pos_embed[0, 1:], (4, 3), (size[0] // 4, size[1] // 8), "bicubic")
    assert_close(x[:, 0], (model.cls_token + model.pos_embed[:, :1])[:, 0].expand(2, -1))
    assert_close(x[:, 1:3], model.reg_token.expand(2, -1, -1))
    assert_close(x[:, 3:], model.patch_embed(images) + table)


@torch.no_grad()
def test_a_class_token_without_a_table_row_has_no_position():
    for options in (
        dict(class_position=False),
        dict(position="sincos"),
        dict(position="rotary"),
        dict(position="none"),
    ):
        model = small_model(**options)
        x, _ = model.embed(random_images(model))
        assert_close(x[:, :1], model.cls_token.expand(2, -1, -1))


@torch.no_grad()
def test_sincos_positions_fit_the_current_grid():
    model = small_model(position="sincos")
    images = random_images(model, size=(8, 40))
    x, _ = model.embed(images)
    assert_close(x[:, 1:], model.patch_embed(images) + sincos_table((2, 5), 16))


def test_positions_that_are_not_learned_add_no_weights():
    for position in ("sincos", "rotary", "none"):
        assert "pos_embed" not in small_model(position=position).state_dict()


@torch.no_grad()
def test_bilinear_and_bicubic_resampling_differ():
    bicubic, bilinear = (small_model(position_resample=mode) for mode in ("bicubic", "bilinear"))
    images = random_images(bicubic, size=(32, 48))
    x, _ = bilinear.embed(images)
    table = resample_table(bilinear.pos_embed[0, 1:], (4, 3), (8, 6), "bilinear")
    assert_close(x[:, 1:], bilinear.patch_embed(images) + table)
    assert (bicubic(images) - bilinear(images)).abs().max() > 1e-4


@torch.no_grad()
def test_features_have_passed_the_last_norm():
    model = create_model(small_config(), seed=0)  # fresh: weight one, bias zero
    features = model.forward_features(random_images(model))
    assert_close(features.mean(dim=-1), torch.zeros(2, 13), rtol=0, atol=1e-5)
    assert_close(features.var(dim=-1, unbiased=False), torch.ones(2, 13), rtol=0, atol=1e-2)


@torch.no_grad()
def test_the_norm_after_pooling_replaces_the_one_before():
    model = create_model(small_config(pooling="mean", final_norm="pooled", num_classes=0), seed=0)
    images = random_images(model)
    raw = model.forward_intermediates(images, [-1])[0]
    assert_close(model.forward_features(images), raw)
    assert_close(model(images), F.layer_norm(raw[:, 1:].mean(dim=1), (16,), eps=1e-6))


@torch.no_grad()
def test_intermediates_are_the_tokens_after_each_block():
    model = small_model(position="rotary", registers=1)
    images = random_images(model)
    found = model.forward_intermediates(images)
    x, rope = model.embed(images)
    for block, tokens in zip(model.blocks, found, strict=True):
        x = block(x, rope)
        assert_close(tokens, x)
    assert_close(model.norm(found[-1]), model.forward_features(images))
    last, first = model.forward_intermediates(images, [-1, 0], norm=True)
    assert_close(last, model.norm(found[2]))
    assert_close(first, model.norm(found[0]))
    with pytest.raises(InputError, match="layer 3 is out of range"):
        model.forward_intermediates(images, [3])


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("name", ["plain", "rotary registers", "many"])
def test_checkpointing_blocks_gives_the_same_loss_and_gradients(name, rate):
    model = small_model(**OPTIONS[name], dropout=rate, attention_dropout=rate, drop_path=rate).train()
    images = random_images(model)
    found = []
    for model.grad_checkpointing in (False, True):
        model.zero_grad()
        torch.manual_seed(7)  # the same dropout
        loss = model(images).square().sum()
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    for plain, checkpointed in zip(*found, strict=True):
        assert_close(plain, checkpointed, rtol=0, atol=0)


def test_checkpointing_keeps_fewer_tensors_for_the_backward():
    model = small_model().train()
    kept = []
    for model.grad_checkpointing in (False, True):
        count = 0

        def pack(tensor):
            nonlocal count
            count += 1
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(random_images(model))
        kept.append(count)
    assert kept[1] < kept[0] / 2


@torch.no_grad()
def test_regularisation_acts_in_training_and_is_off_in_eval_mode():
    for rate in ("dropout", "attention_dropout", "drop_path"):
        model = small_model(**{rate: 0.5})
        images = random_images(model, batch=4)
        assert_close(model(images), model(images), rtol=0, atol=0)
        assert_close(model(images), small_model()(images))
        model.train()
        assert (model(images) - model(images)).abs().max() > 1e-3, rate


@torch.no_grad()
def test_dropout_after_the_embedding_zeroes_that_share_and_keeps_the_mean():
    torch.manual_seed(0)
    model = small_model(dropout=0.3).train()
    images = random_images(model)
    drawn = torch.stack([model.embed(images)[0] for _ in range(500)])
    assert (drawn == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    expected, _ = model.eval().embed(images)
    assert (drawn.mean(dim=0) - expected).abs().max() < 0.2 * expected.abs().max()


@torch.no_grad()
def test_images_of_a_batch_do_not_affect_each_other():
    for name, options in OPTIONS.items():
        model = small_model(**options)
        images = random_images(model, batch=4)
        order = torch.tensor([2, 0, 3, 1])
        logits = model(images)
        assert_close(model(images[order]), logits[order], rtol=1e-4, atol=1e-5, msg=name)
        assert_close(model(images[1:2]), logits[1:2], rtol=1e-4, atol=1e-5, msg=name)


@torch.no_grad()
def test_autocast_and_bfloat16_stay_near_float32():
    model = small_model(position="rotary", registers=2)
    images = random_images(model)
    expected = model(images)
    with torch.autocast("cpu", torch.bfloat16):
        assert (model(images).float() - expected).abs().max() < 0.1 * expected.abs().max()
    assert (model.bfloat16()(images.bfloat16()).float() - expected).abs().max() < 0.1 * expected.abs().max()


def test_state_dict_keys_are_those_of_timm():
    per_block = ["norm1.weight", "norm1.bias", "attn.qkv.weight", "attn.qkv.bias", "attn.q_norm.weight",
                 "attn.q_norm.bias", "attn.k_norm.weight", "attn.k_norm.bias", "attn.proj.weight", "attn.proj.bias",
                 "ls1.gamma", "norm2.weight", "norm2.bias", "mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight",
                 "mlp.fc2.bias", "ls2.gamma"]  # fmt: skip
    expected = ["cls_token", "reg_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias",
                *(f"blocks.{i}.{key}" for i in range(3) for key in per_block),
                "norm.weight", "norm.bias", "head.weight", "head.bias"]  # fmt: skip
    model = small_model(registers=1, qk_norm=True, layer_scale=0.1)
    assert sorted(model.state_dict()) == sorted(expected)


def test_weights_move_between_models_by_state_dict():
    model, other = small_model(seed=0), small_model(seed=5)
    images = random_images(model)
    assert (model(images) - other(images)).abs().max() > 1e-3
    other.load_state_dict(model.state_dict())
    assert_close(other(images), model(images), rtol=0, atol=0)


def test_a_model_is_made_by_name_by_config_or_by_dictionary():
    by_name = create_model("vit_nano_patch4_32", seed=0)
    by_config = create_model(by_name.config, seed=0)
    by_dictionary = create_model(by_name.config.to_dict(), seed=0)
    images = random_images(by_name)
    for model in (by_config, by_dictionary):
        assert isinstance(model, ViT)
        assert_close(model(images), by_name(images), rtol=0, atol=0)
    assert ViT(BASE).config == small_config()


def test_any_field_can_be_changed_on_creation():
    model = create_model("vit_nano_patch4_32", num_classes=7, image_size=(16, 24), registers=2)
    assert model.config == create_model("vit_nano_patch4_32").config.replace(
        num_classes=7, image_size=(16, 24), registers=2
    )
    assert model(torch.zeros(1, 3, 16, 24)).shape == (1, 7)


def test_other_types_are_refused_as_a_model():
    with pytest.raises(
        UnknownNameError, match="unknown model 'vit_bas_patch16_224'; did you mean 'vit_base_patch16_224'"
    ):
        create_model("vit_bas_patch16_224")
    with pytest.raises(UnknownNameError, match="unknown ViTConfig key 'classes'"):
        create_model("vit_nano_patch4_32", classes=3)
    with pytest.raises(ConfigError, match="width=0: must be at least 1"):
        create_model(ViTConfig(), width=0)


@pytest.mark.parametrize("name", ["plain", "distillation", "rotary registers", "attention pooling"])
def test_no_weight_decay_names_exactly_the_tokens_and_positions(name):
    model = small_model(**OPTIONS[name])
    names = {"cls_token", "dist_token", "reg_token", "pos_embed", "attn_pool.latent"}
    assert model.no_weight_decay() == {key for key, _ in model.named_parameters() if key in names}
    assert "cls_token" in model.no_weight_decay()


def test_one_layer_head_or_query_may_be_given_as_a_number():
    model = small_model()
    images = random_images(model)
    assert torch.equal(model.attention(images, layers=-1), model.attention(images, layers=[-1]))
    assert torch.equal(model.attention(images, -1, heads=0, queries=0), model.attention(images, [-1], [0], [0]))
    assert torch.equal(model.forward_intermediates(images, 0)[0], model.forward_intermediates(images, [0])[0])


def test_intermediates_as_a_feature_map_are_the_patch_tokens():
    model = small_model(registers=3)
    images = random_images(model, size=(8, 24))
    (tokens,), (features,) = (model.forward_intermediates(images, -1, output=form) for form in ("NLC", "NCHW"))
    assert features.shape == (2, 16, 2, 3)
    assert torch.equal(features[1, :, 1, 2], tokens[1, 4 + 5])


@pytest.mark.parametrize("options", [{}, dict(distillation=True), dict(pooling="mean", final_norm="pooled")])
def test_the_head_on_the_features_is_the_forward(options):
    model = small_model(**options)
    images = random_images(model)
    tokens = model.forward_features(images)
    assert torch.equal(model.forward_head(tokens), model(images))
    assert model.forward_head(tokens, pre_logits=True).shape == (2, model.config.pooled_width)
