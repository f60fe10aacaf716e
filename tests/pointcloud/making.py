"""Small clouds, files and models, made by code."""

import struct

import laspy
import numpy as np
import torch
from torch import nn

from geomix.checkpoint import Card, ClassInfo, save_model
from pointcloud.cloud import Cloud
from pointcloud.model import build_model

CLASSES = tuple(
    ClassInfo(id=number, name=name, color=color)
    for number, name, color in (
        (2, "ground", "#b08a5a"),
        (3, "low vegetation", "#c8e678"),
        (4, "medium vegetation", "#6ab93c"),
        (5, "high vegetation", "#1e6e28"),
        (6, "building", "#d2413c"),
    )
)
VOXEL = 0.5


class Layers(nn.Module):
    """A model whose class is the number of the voxel above the lowest one: 0, 1, 2, ... and again."""

    def __init__(self, classes=CLASSES, inputs=None, limits=None):
        super().__init__()
        self.classes = len(classes)
        self.seen_memory = []
        card = Card(
            domain="pointcloud",
            name="layers",
            model={},
            classes=classes,
            inputs=inputs or {"voxel": VOXEL, "features": ["offset"]},
            limits=limits or {},
        )
        object.__setattr__(self, "card", card)

    def memory_estimate(self, voxels):
        return 1000 * voxels

    def forward(self, grid_coord, feat, cu_seqlens=None, *, memory=None):
        self.seen_memory.append(memory)
        return 4.0 * nn.functional.one_hot(grid_coord[:, 2] % self.classes, self.classes).float()


def layers_of(cloud, classes=CLASSES):
    """What `Layers` says of each point, by hand."""
    height = cloud.coord[:, 2] - cloud.coord[:, 2].min()
    number = np.floor(np.round(height * 2**20) / 2**20 / VOXEL).astype(int) % len(classes)
    return np.array([info.id for info in classes])[number]


TINY = {
    "in_channels": 3,
    "classes": len(CLASSES),
    "stem_kernel": 3,
    "encoder_depths": [1, 1],
    "encoder_channels": [8, 16],
    "decoder_depths": [1],
    "decoder_channels": [8],
    "mixer": {"name": "pom", "degree": 2, "expand": 2},
    "patch_size": None,
    "drop_path": 0.0,
}


def tiny_model():
    """A real network with fresh weights, always the same."""
    torch.manual_seed(0)
    model = build_model(TINY).eval()
    card = Card(
        domain="pointcloud",
        name="fresh",
        model=TINY,
        classes=CLASSES,
        inputs={"voxel": VOXEL, "features": ["offset"]},
    )
    object.__setattr__(model, "card", card)
    return model


def tiny_model_file(path):
    model = tiny_model()
    save_model(model, model.card, path)
    return path


def scatter(count=500, seed=0, origin=(0.0, 0.0, 0.0), size=(10.0, 10.0, 5.0)):
    """Coordinates in a box, with every tenth point twice."""
    rng = np.random.default_rng(seed)
    coord = rng.uniform(0, size, (count, 3)).round(3)
    coord[9::10] = coord[8:-1:10]
    return coord + np.array(origin)


def cloud_of(count=500, **options):
    rng = np.random.default_rng(1)
    coord = scatter(count, **options)
    return Cloud.from_arrays(
        coord,
        intensity=rng.random(count).astype(np.float32),
        color=rng.random((count, 3)).astype(np.float32),
        classification=rng.integers(0, 20, count).astype(np.uint8),
    )


def make_las(
    path,
    count=300,
    version="1.4",
    point_format=6,
    crs=None,
    extra=(),
    evlr=None,
    origin=(7e5, 6.6e6, 100),
    vlr=None,
):
    """A LAS or LAZ file by laspy with something in every dimension."""
    rng = np.random.default_rng(2)
    header = laspy.LasHeader(version=version, point_format=point_format)
    header.scales, header.offsets = np.full(3, 0.001), np.floor(origin)
    header.system_identifier, header.generating_software = "a scanner", "a program"
    if crs is not None:
        header.add_crs(crs, keep_compatibility=False)
    for name, kind in extra:
        header.add_extra_dim(laspy.ExtraBytesParams(name=name, type=kind, description=f"the {name}"))
    if vlr is not None:
        header.vlrs.append(laspy.VLR("someone", 77, "what is it", vlr))
    data = laspy.LasData(header)
    data.xyz = scatter(count, origin=origin)
    returns = rng.integers(1, 6, count)
    for name in data.point_format.dimension_names:
        dimension = data.point_format.dimension_by_name(name)
        if name in "XYZ":
            continue
        if dimension.kind.name == "FloatingPoint":
            data[name] = rng.random(count)
        elif name in ("return_number", "number_of_returns"):
            data[name] = (
                returns if name == "number_of_returns" else np.minimum(returns, 1 + np.arange(count) % 5)
            )
        elif name.startswith("scan_angle"):
            data[name] = rng.integers(-90, 90, count)
        else:
            most = 200 if dimension.num_elements > 1 else min(dimension.max, 60000)
            shape = (count, dimension.num_elements) if dimension.num_elements > 1 else count
            data[name] = rng.integers(0, most + 1, shape)
    if evlr is not None:
        data.evlrs = laspy.vlrs.vlrlist.VLRList([laspy.VLR("someone", 78, "at the end", evlr)])
    data.write(path)
    return path


def las_parts(path):
    """Header, records, points and tail of a LAS or LAZ file, read by laspy and by hand."""
    raw = path.read_bytes()
    data = laspy.read(path)
    header_size, start, count = struct.unpack_from("<HII", raw, 94)
    vlrs = []
    position = header_size
    for _ in range(count):
        length = struct.unpack_from("<H", raw, position + 20)[0]
        vlrs.append(raw[position : position + 54 + length])
        position += 54 + length
    laszip = [vlr for vlr in vlrs if b"laszip encoded" in vlr[:20]]
    return {
        "header": raw[:94] + raw[111:227] + raw[247:header_size],
        "vlrs": [vlr for vlr in vlrs if vlr not in laszip],
        "gap": raw[position:start],
        "points": data.points.array,
        "evlrs": [(v.user_id, v.record_id, v.description, v.record_data_bytes()) for v in data.evlrs or []],
        "data": data,
    }


def except_class(points):
    """The raw records with the class blanked out and its flags kept."""
    blank = points.copy()
    if "raw_classification" in (points.dtype.names or ()):
        blank["raw_classification"] &= 0xE0
    else:
        blank["classification"] = 0
    return blank
