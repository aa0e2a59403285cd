"""What pyproject.toml cannot say; everything else stands there."""

from __future__ import annotations

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildFromNothing(build_py):
    """setuptools packs whatever lies in ``build/lib``, files of earlier builds that are gone from
    the sources included."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": BuildFromNothing})
