"""A random forest that is served like a network: what it sees of a voxel is all it needs."""

from torch import Tensor, nn

from geomix.learn.trees import Trees, TreesConfig

_BYTES = 4096
"""Memory that one voxel takes, about: its way through all trees of a slice, and its probabilities."""


class Forest(nn.Module):
    """Decision trees on the features of voxels, with the interface of `PPoMv3`.

    Args:
        trees: fitted, or empty arrays before a file fills them.
    """

    def __init__(self, trees: Trees | TreesConfig) -> None:
        super().__init__()
        self.trees = trees if isinstance(trees, Trees) else Trees(trees)
        self.config = self.trees.config
        # Trees have buffers alone; this says on which device they are.
        self.place = nn.Parameter(self.trees.base.new_zeros(0), requires_grad=False)

    def memory_estimate(self, voxels: int, slice_tokens: int | None = None) -> int:
        """Bytes that a prediction needs, about; the trees work in slices of their own."""
        return _BYTES * voxels

    def forward(
        self, grid_coord: Tensor, feat: Tensor, cu_seqlens: Tensor | None = None, *, memory: int | None = None
    ) -> Tensor:
        """Logarithms of the class probabilities, float32, [M, K].

        Args:
            grid_coord: voxels, [M, 3]; trees see no neighbours.
            feat: features, float32, [M, F].
            cu_seqlens: where clouds begin; plays no part.
            memory: plays no part.
        """
        found: Tensor = self.trees(feat)
        return found.clamp(min=1e-9).log()
