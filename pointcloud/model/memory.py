"""How many bytes a prediction needs, before it runs."""

from pointcloud.model.config import ModelConfig

# A coarser stage has at most this share of the voxels of the finer one. Surfaces keep a quarter, wires and
# sparse LiDAR about half.
_KEPT = 0.5
# Per voxel: coordinates, clouds, codes on four curves, permutations (int64), and the pairs of its 13 half
# neighbours, of which half exist in dense scenes.
_GEOMETRY = 8 * (3 + 1 + 4 + 6) + 16 * 7
# Pairs of the first convolution, which is freed again: a surface fills about 25 of the 124 neighbours.
_STEM_PAIRS = 16 * 13
# Rows of the channels that one token holds at a time inside a block: the hidden layer before and after
# its activation, or the features, powers and gates of a mixer.
_ROWS_AT_WORK = 12
# Rows that stay as long as the block runs: its input, the branch to add, and one copy in another order.
_ROWS_KEPT = 4


def estimate(config: ModelConfig, voxels: int, slice_tokens: int | None) -> int:
    """Bytes for the activations and the geometry of `voxels` voxels, an upper estimate."""
    kept = 0.0  # skip connections and geometry of the stages passed
    peak = 0.0
    tokens = float(voxels)
    widths = []
    for stage, channels in enumerate(config.encoder_channels):
        decoded = config.decoder_channels[stage] if stage < len(config.decoder_channels) else channels
        width = max(channels, decoded)
        widths.append(width)
        kept += tokens * _GEOMETRY
        working = tokens if slice_tokens is None else min(tokens, slice_tokens)
        block = 4 * width * (tokens * _ROWS_KEPT + working * _ROWS_AT_WORK * config.mlp_ratio / 4)
        if stage == 0:
            block = max(block, tokens * (_STEM_PAIRS + 8 * channels))
        peak = max(peak, kept + block)
        kept += 4 * tokens * channels  # the skip connection
        tokens *= _KEPT
    return int(peak + 4 * voxels * (config.in_channels + config.classes))
