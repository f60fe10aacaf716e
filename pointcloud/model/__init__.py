"""The network: PPoMv3, PTv3 and everything between, built from one configuration."""

from pointcloud.model.config import ModelConfig as ModelConfig
from pointcloud.model.network import PPoMv3 as PPoMv3
from pointcloud.model.network import build_model as build_model
from pointcloud.model.network import parameters_by_stage as parameters_by_stage
