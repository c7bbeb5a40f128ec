"""Roots that instances share: made once in the launcher's own mount namespace, copied with the namespace at each start.

A root holds what any program of the machine needs to run and nothing of the platform. Only the launcher can write to it.
"""

from __future__ import annotations

import os
import stat

from . import syscalls as sys
from .mounts import expose
from .syscalls import MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC

HOSTNAME = "function"
TEMPORARY = "/tmp/"  # noqa: S108 - the instance's own
"""Each instance has one of its own, in which nothing can be prepared."""

SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"))
_EMPTY_FOLDERS = ("proc", "run", "tmp", "var", "dev/shm")
# Trust stores and the farm of symbolic links, on Debian, Fedora, Arch and Alpine alike; never a folder with private keys.
ETC_FOLDERS = ("ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted", "ca-certificates/extracted", "alternatives")
ETC_FILES = (
    "gai.conf",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "pki/tls/openssl.cnf",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/cert.pem",
    "ssl/openssl.cnf",
)


class Roots:
    """The roots made so far, one for each set of interpreters."""

    def __init__(self, folder: str) -> None:
        """`folder` is made; a file system that only this mount namespace shows is mounted there, the roots below it."""
        os.makedirs(folder, mode=0o700, exist_ok=True)
        sys.mount("roots", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=700,size=64k")
        self._folder = folder
        self._made: dict[tuple[str, ...], Root] = {}

    def close(self) -> None:
        """Take the roots away, and the folder."""
        sys.umount2(self._folder, sys.MNT_DETACH)
        os.rmdir(self._folder)

    def root_for(self, prefixes: tuple[str, ...]) -> Root:
        """The root that shows these interpreters' folders, up to date. Raises OSError naming what could not be mounted."""
        root = self._made.get(prefixes)
        if root is None:
            path = f"{self._folder}/{len(self._made)}"
            os.makedirs(path, exist_ok=True)
            elsewhere = ("/usr/", TEMPORARY)
            root = self._made[prefixes] = Root(path, [one for one in prefixes if not one.startswith(elsewhere)])
        root.refresh()
        return root


class Root:
    """One root, mounted at `path`."""

    def __init__(self, path: str, prefixes: list[str]) -> None:
        self.path = path
        self._copied: dict[str, tuple[int, int, int]] = {}
        sys.mount("root", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m,nr_inodes=4096")
        sys.mount(None, path, None, MS_PRIVATE)
        try:
            self._fill(prefixes)
        except BaseException:
            sys.umount2(path, sys.MNT_DETACH)
            raise
        sys.mount(None, path, None, MS_PRIVATE | MS_REC)

    def refresh(self) -> None:
        """Copy the files of /etc that have changed since; running instances see the new ones too."""
        for name in ETC_FILES:
            self._copy(name)

    def add_folder(self, target: str) -> None:
        """Make the folder `target` of the root, where an instance mounts a layer."""
        os.makedirs(self.path + target, exist_ok=True)

    def _fill(self, prefixes: list[str]) -> None:
        self._show("/usr")
        for name in SYSTEM_FOLDERS:
            if os.path.lexists(f"/{name}"):
                self._show(f"/{name}")
        for name in _EMPTY_FOLDERS:
            os.makedirs(f"{self.path}/{name}", exist_ok=True)
        os.symlink("/tmp", f"{self.path}/var/tmp")  # noqa: S108 - the instance's own
        self._add_devices()
        self._add_etc()
        for prefix in prefixes:
            self._show(prefix)

    def _show(self, path: str) -> None:
        """Show a folder of the machine at its own place, or the symbolic link that stands there."""
        target = self.path + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
            return
        os.makedirs(target, exist_ok=True)
        expose(path, target)

    def _add_devices(self) -> None:
        for name in DEVICES:
            with open(f"{self.path}/dev/{name}", "xb"):
                pass
            expose(f"/dev/{name}", f"{self.path}/dev/{name}", MS_RDONLY | MS_NOSUID | MS_NOEXEC)
        for name, target in _DEVICE_LINKS:
            os.symlink(target, f"{self.path}/dev/{name}")

    def _add_etc(self) -> None:
        os.mkdir(f"{self.path}/etc")
        for name in ETC_FOLDERS:
            if os.path.lexists(f"/etc/{name}"):
                self._show(f"/etc/{name}")
        for name in ("passwd", "group"):
            os.symlink(f"/run/{name}", f"{self.path}/etc/{name}")

    def _copy(self, name: str) -> None:
        source, target = f"/etc/{name}", f"{self.path}/etc/{name}"
        if name == "localtime" and os.path.islink(source):
            _relink(os.readlink(source), target)
            return
        try:
            found = os.stat(source)
            version = (found.st_mtime_ns, found.st_size, found.st_ino)
            if self._copied.get(name) == version or not stat.S_ISREG(found.st_mode) or not found.st_mode & stat.S_IROTH:
                return
            with open(source, "rb") as file:
                content = file.read()
        except OSError:
            return  # Not there, or not for everybody's eyes: then not for an instance's either.
        if name == "hosts":
            content += f"\n127.0.0.1 {HOSTNAME}\n".encode()
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _replace(target, content)
        self._copied[name] = version


def _relink(destination: str, target: str) -> None:
    if os.path.lexists(target):
        if os.readlink(target) == destination:
            return
        os.unlink(target)
    os.symlink(destination, target)


def _replace(target: str, content: bytes) -> None:
    with open(target + ".new", "wb") as file:
        file.write(content)
    os.rename(target + ".new", target)
