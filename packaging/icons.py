"""The application's icon in the forms that Windows and macOS want, drawn from the SVG: run by kvplanner.spec there.

Both are containers of PNG files: .ico as Windows reads it since Vista, .icns since OS X 10.7.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_ICO_SIZES: Final = (16, 24, 32, 48, 64, 128, 256)
_ICNS_SIZES: Final[Mapping[bytes, int]] = {b"ic11": 32, b"ic07": 128, b"ic08": 256, b"ic09": 512, b"ic10": 1024}


def png(svg: Path, size: int) -> bytes:
    """A square picture of an SVG file as PNG."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtCore import QBuffer, QByteArray, QIODevice
    from PySide6.QtGui import QGuiApplication, QImage, QImageWriter, QPainter
    from PySide6.QtSvg import QSvgRenderer

    app = QGuiApplication.instance() or QGuiApplication([])
    image = QImage(size, size, QImage.Format.Format_ARGB32)
    image.fill(0)
    painter = QPainter(image)
    QSvgRenderer(str(svg)).render(painter)
    painter.end()
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(b"PNG")).write(image)
    assert app is not None
    return bytes(buffer.data().data())


def ico(svg: Path) -> bytes:
    """A Windows icon with every size that its shell shows."""
    pictures = [png(svg, size) for size in _ICO_SIZES]
    offset = 6 + 16 * len(pictures)
    entries = b""
    for size, data in zip(_ICO_SIZES, pictures, strict=True):
        entries += struct.pack("<BBBBHHII", size % 256, size % 256, 0, 0, 1, 32, len(data), offset)
        offset += len(data)
    return struct.pack("<HHH", 0, 1, len(pictures)) + entries + b"".join(pictures)


def icns(svg: Path) -> bytes:
    """A macOS icon."""
    body = b""
    for kind, size in _ICNS_SIZES.items():
        data = png(svg, size)
        body += kind + struct.pack(">I", 8 + len(data)) + data
    return b"icns" + struct.pack(">I", 8 + len(body)) + body
