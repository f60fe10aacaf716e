"""Put configs/, which lies beside the packages in the repository, inside the wheel as geomix/configs."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """Build the packages; a wheel carries the configurations, an editable install reads them in place."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "geomix" / "configs"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(Path(__file__).parent / "configs", target)


setup(cmdclass={"build_py": BuildWithConfigs})
