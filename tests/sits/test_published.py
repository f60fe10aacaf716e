"""Published TSViT checkpoints: the imported model computes what the published formula says."""

import math

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from geomix.checkpoint import load_model, read_card
from geomix.errors import CheckpointError, MissingFileError, OutputExistsError
from sits.model.published import import_tsvit, load_tsvit

DIM, HEADS, HEAD_DIM, HIDDEN, CLASSES, PATCH, SIDE = 16, 2, 4, 24, 5, 2, 3


def weights(bands=3, classes=CLASSES, prefix=""):
    """Random weights under the published names."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator) * 0.3

    def linear(name, out, into, bias=True):
        return {f"{name}.weight": draw(out, into)} | ({f"{name}.bias": draw(out)} if bias else {})

    def norm(name):
        return {f"{name}.weight": 1 + draw(DIM), f"{name}.bias": draw(DIM)}

    found = {
        **linear("to_patch_embedding.1", DIM, PATCH**2 * bands),
        **linear("to_temporal_embedding_input", DIM, 366),
        "temporal_token": draw(1, classes, DIM),
        "space_pos_embedding": draw(1, SIDE**2, DIM),
        **norm("mlp_head.0"),
        **linear("mlp_head.1", PATCH**2, DIM),
    }
    for encoder in ("temporal_transformer", "space_transformer"):
        found |= norm(f"{encoder}.norm")
        for layer in range(2):
            name = f"{encoder}.layers.{layer}"
            found |= {
                **norm(f"{name}.0.norm"),
                **linear(f"{name}.0.fn.to_qkv", 3 * HEADS * HEAD_DIM, DIM, bias=False),
                **linear(f"{name}.0.fn.to_out.0", DIM, HEADS * HEAD_DIM),
                **norm(f"{name}.1.norm"),
                **linear(f"{name}.1.fn.net.0", HIDDEN, DIM),
                **linear(f"{name}.1.fn.net.3", DIM, HIDDEN),
            }
    # In float64, but of numbers that fp32 holds: our model rounds none of them.
    return {prefix + key: value.double() for key, value in found.items()}


def published(w, values, days):
    """The published forward pass, written out: values [B, T, C, H, W], days of the year [B, T]."""

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

    def norm(name, x):
        return layer_norm(x, (DIM,), w[f"{name}.weight"], w[f"{name}.bias"])

    def encode(name, x):
        for layer in range(2):
            part = f"{name}.layers.{layer}"
            q, k, v = linear(f"{part}.0.fn.to_qkv", norm(f"{part}.0.norm", x)).chunk(3, -1)
            heads = []
            for head in range(HEADS):
                at = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
                scores = q[..., at] @ k[..., at].transpose(-1, -2) / math.sqrt(HEAD_DIM)
                heads.append(scores.softmax(-1) @ v[..., at])
            x = x + linear(f"{part}.0.fn.to_out.0", torch.cat(heads, -1))
            hidden = gelu(linear(f"{part}.1.fn.net.0", norm(f"{part}.1.norm", x)))
            x = x + linear(f"{part}.1.fn.net.3", hidden)
        return norm(f"{name}.norm", x)

    batch, dates, _, height, width = values.shape
    rows, columns = height // PATCH, width // PATCH
    hot = torch.nn.functional.one_hot((days.float() / 365.0001 * 365.0001).long(), 366).double()
    time = linear("to_temporal_embedding_input", hot)
    logits = values.new_zeros(batch, CLASSES, height, width)
    for b in range(batch):
        places = []
        for row in range(rows):
            for column in range(columns):
                at = (slice(row * PATCH, (row + 1) * PATCH), slice(column * PATCH, (column + 1) * PATCH))
                patch = values[b][..., at[0], at[1]].permute(0, 2, 3, 1).reshape(dates, -1)
                tokens = linear("to_patch_embedding.1", patch) + time[b]
                tokens = torch.cat([w["temporal_token"][0], tokens])
                places.append(encode("temporal_transformer", tokens)[:CLASSES])
        for number in range(CLASSES):
            tokens = torch.stack([place[number] for place in places]) + w["space_pos_embedding"][0]
            scores = linear("mlp_head.1", norm("mlp_head.0", encode("space_transformer", tokens)))
            # Patch after patch, four outputs each, laid into the image row by row: not where patches lie.
            logits[b, number] = scores.reshape(height, width)
    return logits


def imported(folder, w):
    torch.save(w, folder / "tsvit.pth")
    return load_tsvit(folder / "tsvit.pth", HEADS).double().eval()


def run(model, values, days):
    valid = torch.ones(*values.shape[:2], *values.shape[3:], dtype=torch.bool)
    with torch.inference_mode():
        return model(values, days, valid)


def test_an_imported_model_gives_the_published_logits(tmp_path):
    """Sixty dates: nothing is filled up and nothing cut."""
    w = weights()
    values, days = torch.randn(2, 60, 3, 6, 6).double(), torch.randint(0, 367, (2, 60))
    expected = published(w, values, days)
    torch.testing.assert_close(run(imported(tmp_path, w), values, days), expected, atol=1e-12, rtol=1e-12)


def test_outputs_go_where_the_published_head_puts_them(tmp_path):
    """In the published code a patch lights up pixels of one row, which are not its own."""
    w = {name: torch.zeros_like(value) for name, value in weights().items()}
    w |= {"mlp_head.0.weight": torch.ones(DIM), "mlp_head.1.bias": torch.arange(4.0)}
    found = run(imported(tmp_path, w), torch.zeros(1, 2, 3, 6, 6).double(), torch.tensor([[1, 2]]))
    assert torch.equal(found[0, 0].long(), (torch.arange(36) % 4).view(6, 6))


def test_short_series_are_filled_as_the_published_training_did(tmp_path):
    w = weights()
    values, days = torch.randn(1, 4, 3, 6, 6).double(), torch.tensor([[13, 100, 208, 366]])
    filled = torch.cat([values, torch.zeros(1, 56, 3, 6, 6)], 1)
    expected = published(w, filled, torch.cat([days, torch.zeros(1, 56, dtype=torch.long)], 1))
    torch.testing.assert_close(run(imported(tmp_path, w), values, days), expected, atol=1e-12, rtol=1e-12)


def test_long_series_keep_the_first_sixty_days_of_the_year_as_published(tmp_path):
    """The published loader sorts a series by day of the year and cuts it after 60 dates."""
    w = weights()
    days = torch.randperm(366, generator=torch.Generator().manual_seed(5))[None, :63]
    values = torch.randn(1, 63, 3, 6, 6).double()
    first = days[0].argsort()[:60]
    expected = published(w, values[:, first], days[:, first])
    torch.testing.assert_close(run(imported(tmp_path, w), values, days), expected, atol=1e-12, rtol=1e-12)


def test_a_guessed_number_of_heads_is_a_warning(tmp_path, caplog):
    torch.save(weights(bands=10, classes=19), tmp_path / "best.pth")
    with pytest.raises(CheckpointError, match="8 attention channels for 3 heads do not fit"):
        import_tsvit(tmp_path / "best.pth", tmp_path / "tsvit.safetensors", heads=3)
    assert not caplog.text
    import_tsvit(tmp_path / "best.pth", tmp_path / "tsvit.safetensors")
    assert "4, as published, are taken" in caplog.text


@pytest.mark.parametrize("wrap", [lambda w: w, lambda w: {"state_dict": w}], ids=["bare", "wrapped"])
def test_a_checkpoint_becomes_a_model_file(tmp_path, wrap):
    file, output = tmp_path / "best.pth", tmp_path / "tsvit.safetensors"
    w = weights(bands=10, classes=19, prefix="module.")
    torch.save(wrap(w), file)
    card = import_tsvit(file, output, heads=HEADS)
    assert read_card(output).name == card.name == "best"
    model = load_model(output, domain="sits")
    assert torch.equal(model.class_tokens, w["module.temporal_token"][0].float())
    assert (model.patch, model.config.fill_dates, card.inputs["days"]) == (6, 60, "year")
    assert len(card.inputs["mean"]) == 10
    with pytest.raises(OutputExistsError):
        import_tsvit(file, output, heads=HEADS)


class Harmful:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Harmful(), "tensors alone"),
        ({"epoch": 3}, "no state dict"),
        ({"conv.weight": torch.zeros(1)}, "mlp_head.1.weight is missing"),
        (weights() | {"other.weight": torch.zeros(1)}, "holds 'other.weight', which has no place"),
        (weights() | {"space_token": torch.zeros(1, 1, DIM)}, "holds 'space_token', which has no place"),
        (
            weights() | {"mlp_head.0.bias": torch.zeros(3)},
            "'mlp_head.0.bias' has shape \\[3\\], not \\[16\\]",
        ),
        (weights() | {"temporal_token": torch.zeros(3)}, "another number of axes"),
        (weights() | {"mlp_head.1.bias": torch.full((4,), torch.nan)}, "not finite"),
        ({k: v for k, v in weights().items() if k != "mlp_head.0.bias"}, "nothing in it fills 'head.0.bias'"),
        (weights(), "3 bands and 5 classes"),
    ],
    ids=[
        *("harmful", "no-weights", "foreign", "more", "another-variant", "other-shape", "other-axes", "nan"),
        *("less", "other-data"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    file = tmp_path / "file.pth"
    torch.save(content, file)
    with pytest.raises(CheckpointError, match=message):
        import_tsvit(file, tmp_path / "out.safetensors", heads=HEADS)
    assert not (tmp_path / "out.safetensors").exists()


def test_a_missing_or_damaged_file_says_so(tmp_path):
    with pytest.raises(MissingFileError, match="no such checkpoint"):
        import_tsvit(tmp_path / "none.pth", tmp_path / "out.safetensors")
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(CheckpointError, match=r"cut\.pth: is no PyTorch file"):
        import_tsvit(tmp_path / "cut.pth", tmp_path / "out.safetensors")
